"""Clients over streamable HTTP, as an ASGI application: `/mcp` and the paths below it, which show less.

`/api/servers` is the administrator's (`admin.py`), `/healthz` and `/metrics` are for monitoring, and parts add paths of their
own (`routes.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import anyio
from anyio.abc import TaskStatus

from toolpost.base.caller import Caller
from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import ErrorCode, NotFound, QueueOverloaded
from toolpost.endpoints.auth.access import Access
from toolpost.endpoints.auth.roster import Admission
from toolpost.endpoints.calls import METHODS, Lane, log_refused, progress_token
from toolpost.endpoints.client_session import Correspondent
from toolpost.endpoints.http.admin import Admin
from toolpost.endpoints.http.connection import FrontProtocol
from toolpost.endpoints.http.descriptors import exhausted, has_run_out, warn_exhausted
from toolpost.endpoints.http.disconnect import closed_on_removal
from toolpost.endpoints.http.event_log import EventLog
from toolpost.endpoints.http.exchange import EventStream, answer_quietly, resume, send_json, send_text
from toolpost.endpoints.http.head import Head, head_of, split_head
from toolpost.endpoints.http.paths import HEALTH_PATH, MCP_PATH, METADATA_PATH, METRICS_PATH, view_of
from toolpost.endpoints.http.refusal import Refused, forbidden, overloaded
from toolpost.endpoints.http.request import HttpRequest, Receive, Scope, Send
from toolpost.endpoints.http.routes import Routes
from toolpost.endpoints.http.sessions import Session, Sessions
from toolpost.endpoints.in_flight import CANCEL_REQUEST, CANCELLED
from toolpost.endpoints.sdk.http import SdkHttp
from toolpost.endpoints.sdk.lazy import LateSdk, parameter_header_problem
from toolpost.endpoints.tasks import TASK_METHODS, task_id
from toolpost.metrics import CONTENT_TYPE as METRICS_TYPE
from toolpost.middleware import Call
from toolpost.protocol import era, rpc
from toolpost.protocol.rpc import INVALID_REQUEST, PARSE_ERROR, Message, ProtocolError
from toolpost.shares import EndpointShares

LISTEN: Final = "subscriptions/listen"


class HttpEndpoint:
    """The ASGI application. `run` must be running beside it: it keeps the SDK's part alive."""

    def __init__(
        self,
        lane: Lane,
        sdk: LateSdk,
        access: Access,
        *,
        body_limit: int,
        health: Callable[[], JsonObject],
        metrics: Callable[[], str],
        admin: Admin,
        routes: Sequence[Routes],
        shares: EndpointShares,
        loads_early: bool = True,
        bare_names: bool = True,
    ) -> None:
        self._lane = lane
        self._access = access
        self._admin = admin
        self._routes = routes
        self.body_limit = body_limit
        self._health = health
        self._metrics = metrics
        self._bare_names = bare_names
        self._streams = shares.streams
        self._sessions = Sessions(shares.sessions)
        self._sdk = SdkHttp(sdk, self._sessions, shares.streams, body_limit=body_limit, loads_early=loads_early)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        try:
            request = HttpRequest(scope, receive, send)
        except Refused as refusal:
            await send_json(send, refusal.body, status=refusal.status, headers=[(b"connection", b"close")])
            return
        send = request.send
        try:
            await self._route(request)
        except Refused as refusal:
            await send_json(send, refusal.body, status=refusal.status, headers=refusal.headers)
        except NotFound as error:
            # The path names what nobody has, or has any more.
            await send_json(send, _nowhere(error).body, status=404)
        except Exception as error:  # noqa: BLE001 (a bug of ours gets an answer too)
            if has_run_out(error):
                warn_exhausted("answering a request")
                told = exhausted()
                await send_json(send, told.body, status=told.status, headers=told.headers)
            else:
                await send_json(send, rpc.internal_error(error).as_response(), status=500)

    @property
    def asks_who_calls(self) -> bool:
        """Whether a request is admitted by a token alone."""
        return self._access.roster.everybody is None

    def read_head(self, raw: bytes) -> Head | None:
        """Judge a head for the lean lane; whoever may not come in is told so at length, by `__call__`."""
        headers = split_head(raw)
        if headers is None:
            return None
        try:
            admission = self._access.known(headers)
        except Refused:
            return None
        return head_of(headers, admission) if admission is not None else None

    def start(self, front: FrontProtocol, head: Head, body: bytes) -> bool:
        """Answer a call or a list that is in every way plain; False leaves it to `__call__`."""
        try:
            message = rpc.parse(body)
            if message.method not in METHODS or message.id is None or not self._lane.is_ready(head.admission.view):
                return False
            session = None if head.is_modern else self._sessions.find(head.session_id, head.admission.caller)
            if session is None and not head.is_modern:
                return False
            if message.method == "tools/list":
                return self._list_at_once(front, head, message, session)
            return self._call_at_once(front, head, message, session)
        except ProtocolError:
            return False

    def _list_at_once(self, front: FrontProtocol, head: Head, message: Message, session: Session | None) -> bool:
        cursor, meta = rpc.list_params(message)
        if session is None and not _is_plainly_modern(head, message, meta, None):
            return False
        assert message.id is not None
        revision = session.revision if session else era.MODERN
        front.respond(self._lane.list_tools(message.id, cursor, revision, view=head.admission.view))
        return True

    def _call_at_once(self, front: FrontProtocol, head: Head, message: Message, session: Session | None) -> bool:
        assert message.id is not None
        name, arguments, meta, resumption = rpc.call_params(message)
        if (
            "progressToken" in meta
            or era.LOG_LEVEL in meta
            or (session is None and not _is_plainly_modern(head, message, meta, name))
        ):
            return False
        if resumption is not None or (session is not None and message.key in session.calls):
            return False
        client_channel = None
        if session is not None and session.conversation.is_open and head.takes_events:
            client_channel = Correspondent(session.conversation, front.sender(lambda: session.open_log(call)))
        caller = session.caller if session else head.admission.caller
        view = head.admission.view
        call = self._lane.admit(
            message.id, name, arguments, meta, caller=caller, notify=None, view=view, client_channel=client_channel
        )
        if session is None and call.mirrors_arguments:
            return False
        is_asked = self._lane.ask(call)
        # From here on the server is at work, if it was asked.
        if session is not None:
            session.calls.add(message.key, call)
        else:
            front.begin(call)
        if not is_asked:
            front.carry(self._answer(front, message, call, session))
            return True
        revision = session.revision if session else era.MODERN

        def carry() -> None:
            front.carry(self._answer(front, message, call, session))

        def send(body: bytes) -> None:
            if session is not None:
                session.calls.remove(message.key)
            front.respond(body)

        self._lane.begin(message.id, call, revision, carry=carry, send=send)
        return True

    async def _answer(self, front: FrontProtocol, message: Message, call: Call, session: Session | None) -> None:
        assert message.id is not None
        status, revision = 200, session.revision if session else era.MODERN
        try:
            body = await self._lane.answer(message.id, call, revision)
        except ProtocolError as error:
            status, body = _status_in(error.code, revision.version), error.as_response()
        finally:
            if session is not None:
                session.calls.remove(message.key)
        front.respond(body, status)

    async def _told(self, request_id: bytes, call: Call, revision: era.Revision) -> tuple[int, bytes]:
        """Let a call pass and return the status and the body of its response."""
        try:
            return 200, await self._lane.answer(request_id, call, revision)
        except ProtocolError as error:
            return _status_in(error.code, revision.version), error.as_response()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Do what goes on between requests, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._let_go)
            await self._sdk.run(task_status=task_status)

    async def _let_go(self) -> None:
        """End what callers have open who may come in no more, whenever others are known."""
        replaced = self._access.roster.replaced
        while True:
            await replaced.wait()
            # Before the work, which takes a while: others may be known again by its end.
            replaced = self._access.roster.replaced
            self._sdk.reseat(self._access.roster.scopes_of)
            for session_id in self._sessions.of_others_than(self._access.roster.knows):
                await self._sdk.end(session_id)

    async def _route(self, request: HttpRequest) -> None:
        if (view := view_of(request.path, is_bare=self._bare_names)) is not None:
            admission = await self._access.admitted(request)
            request.view = view.within(admission.scopes)
            await self._lane.prepare(request.view)
            self._lane.gateway.catalog.narrow(request.view)
            if request.method == "POST":
                await self._post(request, admission)
            elif (lost := self._lost_stream(request, admission.caller)) is not None:
                with _refusing(), self._streams.held(admission.caller.id):
                    await resume(*lost, request.receive, request.send)
            else:
                async with closed_on_removal(request, self._access.roster, admission):
                    await self._sdk.serve(request, admission.caller, request.receive)
        elif request.path.startswith(METADATA_PATH):
            await self._answer_metadata(request)
        elif request.path == HEALTH_PATH:
            await self._answer_health(request)
        elif request.path == METRICS_PATH:
            await self._answer_metrics(request)
        elif self._admin.serves(request.path):
            await self._admin.answer(request)
        elif (routes := next((each for each in self._routes if each.serves(request.path)), None)) is not None:
            await routes.answer(request)
        else:
            raise Refused(404, ErrorCode.NOT_FOUND, f"Not found; MCP is at {MCP_PATH}")

    def _lost_stream(self, request: HttpRequest, caller: Caller) -> tuple[EventLog, int] | None:
        """Return the stream of a call that a client of the handshake era comes back for, and the last event that it has."""
        last = request.headers.get(b"last-event-id")
        if request.method != "GET" or last is None or not request.takes(b"text/event-stream"):
            return None
        session = self._session_of(request, caller)
        return session.logs.find(last.decode("latin-1")) if session is not None else None

    async def _answer_metadata(self, request: HttpRequest) -> None:
        """Say where tokens for this server come from, as RFC 9728 has it."""
        self._access.check_names(request.headers)
        metadata = self._access.roster.metadata()
        if metadata is None:
            raise Refused(404, ErrorCode.NOT_FOUND, "No authorization server is configured here")
        await send_json(request.send, rpc.encode(metadata), headers=[(b"access-control-allow-origin", b"*")])

    async def _answer_health(self, request: HttpRequest) -> None:
        try:
            admission = await self._access.admitted(request)
        except Refused:
            admission = None
        if admission is None or admission.scopes:
            # Whoever may not see everything learns that the server is up, and nothing about it.
            await send_json(request.send, b'{"status":"ok"}')
            return
        await send_json(request.send, rpc.encode(self._health()))

    async def _answer_metrics(self, request: HttpRequest) -> None:
        if not (await self._access.admitted(request)).is_admin:
            raise forbidden("Only a caller with `admin = true` may read the metrics of all callers")
        await send_text(request.send, self._metrics().encode(), METRICS_TYPE)

    async def _post(self, request: HttpRequest, admission: Admission) -> None:
        caller = admission.caller
        if not request.is_json:
            raise Refused(415, ErrorCode.INVALID_REQUEST, "Send `Content-Type: application/json`")
        body = await request.body(self.body_limit)
        if body is None:
            return
        try:
            message = rpc.parse(body) if len(body) <= rpc.OFF_LOOP_BYTES else await rpc.parse_off_loop(body)
            if message.method == LISTEN:
                async with closed_on_removal(request, self._access.roster, admission):
                    await self._sdk.serve(request, caller, request.replayed(body), message)
            elif not await self._in_lane(message, request, caller):
                await self._sdk.serve(request, caller, request.replayed(body), message)
        except ProtocolError as error:
            log_refused(error, caller)
            await send_json(request.send, error.as_response(), status=_status_of(error, request))

    async def _in_lane(self, message: Message, request: HttpRequest, caller: Caller) -> bool:
        """Answer what the lean lane can; False leaves the message to the SDK."""
        session = None
        if request.version != era.MODERN.version:
            session = self._session_of(request, caller)
            if session is None:
                return False
            if message.method in (CANCELLED, CANCEL_REQUEST):
                return await _cancel(session, message, request.send)
            if message.method is None and message.id is not None and session.conversation.take(message):
                await _accept(request.send)
                return True
            if message.method == "logging/setLevel":
                session.conversation.note_level(rpc.params_object(message))
        if message.method in TASK_METHODS and session is None and message.id is not None:
            return await self._answer_about_task(message, request, caller)
        if message.method not in METHODS or message.id is None:
            return False
        if not request.takes(b"application/json"):
            raise Refused(406, ErrorCode.INVALID_REQUEST, "Send `Accept: application/json, text/event-stream`")
        if message.method == "tools/list":
            cursor, meta = rpc.list_params(message)
            revision = _agreed(session, message, meta, request, None)
            await send_json(request.send, self._lane.list_tools(message.id, cursor, revision, view=request.view))
        else:
            await self._call(message, session, request, caller)
        return True

    async def _answer_about_task(self, message: Message, request: HttpRequest, caller: Caller) -> bool:
        if (lane := self._lane.tasks) is None:
            return False
        meta = rpc.params_object(message).get("_meta")
        _agreed(None, message, meta if isinstance(meta, dict) else {}, request, task_id(message))
        await send_json(request.send, await lane.answer(message, caller))
        return True

    def _session_of(self, request: HttpRequest, caller: Caller) -> Session | None:
        if request.version and request.version not in era.HANDSHAKE_VERSIONS:
            return None
        return self._sessions.find(request.session_id, caller, request.view)

    async def _call(self, message: Message, session: Session | None, request: HttpRequest, caller: Caller) -> None:
        assert message.id is not None
        name, arguments, meta, resumption = rpc.call_params(message)
        revision = _agreed(session, message, meta, request, name)
        may_tell = progress_token(meta) is not None or era.LOG_LEVEL in meta
        may_tell = may_tell or (session is not None and session.conversation.is_open)
        stream = EventStream(request.send, session) if may_tell and request.takes(b"text/event-stream") else None
        client_channel = Correspondent(session.conversation, stream.notify) if session and stream else None
        if session is not None:
            _check_new(session, message)
        call = self._lane.admit(
            message.id,
            name,
            arguments,
            meta,
            caller=session.caller if session else caller,
            notify=stream.notify if stream else None,
            view=request.view,
            client_channel=client_channel,
            resumption=resumption,
        )
        if session is None and call.mirrors_arguments:
            await _check_parameter_headers(call, arguments, request, message.id)
        with _noted(session, message, call):
            answering = self._told(message.id, call, revision)
            if stream is None:
                outlives = session is not None
                await answer_quietly(call, answering, request.receive, request.send, outlives=outlives)
            else:
                await stream.answer(call, answering, request.receive)


def _nowhere(error: NotFound) -> Refused:
    return Refused(404, ErrorCode.NOT_FOUND, f"{error.message} ({error.hint})" if error.hint else error.message)


def _is_plainly_modern(head: Head, message: Message, meta: JsonObject, name: str | None) -> bool:
    """Whether headers and envelope are all there and agree; what is wrong otherwise is said by `_agreed`."""
    return (
        meta.get(era.PROTOCOL_VERSION) == era.MODERN.version
        and era.CLIENT_CAPABILITIES in meta
        and head.method == message.method
        and (name is None or head.name == name)
    )


def _agreed(
    session: Session | None, message: Message, meta: JsonObject, request: HttpRequest, name: str | None
) -> era.Revision:
    """Say which revision the request speaks, or refuse one whose headers and body disagree."""
    if session is not None:
        return session.revision
    assert message.id is not None
    assert message.method is not None
    era.check_envelope_keys(meta, request_id=message.id)
    era.check_modern_headers(request.headers, meta=meta, method=message.method, name=name, request_id=message.id)
    return era.MODERN


async def _check_parameter_headers(call: Call, arguments: JsonObject, request: HttpRequest, request_id: bytes) -> None:
    text = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
    schema = call.tool.contract.arguments_schema.raw
    if (problem := await parameter_header_problem(schema, arguments, text)) is not None:
        # One that was held is nobody's any more: its state has been used.
        call.cancel("the client came back with headers that do not match the body")
        raise ProtocolError(era.HEADER_MISMATCH, problem, request_id=request_id)


@contextmanager
def _refusing() -> Iterator[None]:
    """Say in HTTP what there is too much of."""
    try:
        yield
    except QueueOverloaded as error:
        raise overloaded(error) from error


@contextmanager
def _noted(session: Session | None, message: Message, call: Call) -> Iterator[None]:
    """Keep a call where its session's cancellations find it."""
    if session is None:
        yield
        return
    # Again: there was a wait since it was looked at before.
    _check_new(session, message)
    key = message.key
    session.calls.add(key, call)
    try:
        yield
    finally:
        session.calls.remove(key)


def _check_new(session: Session, message: Message) -> None:
    """Refuse an id that is in flight already; the refusal is the response of its own request, and so has its id."""
    try:
        session.calls.check_new(message.key)
    except ProtocolError as error:
        error.request_id = message.id or b"null"
        raise


async def _cancel(session: Session, message: Message, send: Send) -> bool:
    """Stop a call of this session; in this era its own response then says `CANCELLED`."""
    if not session.calls.cancel(message):
        return False
    await _accept(send)
    return True


async def _accept(send: Send) -> None:
    await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def _status_of(error: ProtocolError, request: HttpRequest) -> int:
    """Follow the era: the stateless one says it in the HTTP status too, older ones only what is no request at all."""
    return _status_in(error.code, request.version)


def _status_in(code: int, version: str) -> int:
    """Return the HTTP status of a JSON-RPC error, ours or a server's own, in a revision."""
    if version != era.MODERN.version:
        return 400 if code in (INVALID_REQUEST, PARSE_ERROR) else 200
    return era.STATUS_OF.get(code, 200)
