"""Clients over streamable HTTP, as an ASGI application: `/mcp` and the paths below it, which show less.

`/healthz` and `/metrics` are for monitoring; the administrator's API and parts add paths of their own (`routes.py`).
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskStatus

from toolpost.base.caller import Caller
from toolpost.base.ids import JsonObject, new_call_id
from toolpost.base.trace_context import continue_from_headers
from toolpost.contracts.errors import ErrorCode, NotFound, QueueOverloaded
from toolpost.endpoints.auth.access import Access
from toolpost.endpoints.auth.roster import Admission
from toolpost.endpoints.calls import METHODS, CallHandler, progress_token
from toolpost.endpoints.client_session import HandshakeClientChannel
from toolpost.endpoints.http.connection import ServerConnection
from toolpost.endpoints.http.descriptors import exhausted, is_out_of_descriptors, warn_exhausted
from toolpost.endpoints.http.disconnect import close_on_removal
from toolpost.endpoints.http.event_log import EventLog
from toolpost.endpoints.http.exchange import EventStream, answer_quietly, resume, send_json, send_text
from toolpost.endpoints.http.head import RequestHead, parse_head, split_head
from toolpost.endpoints.http.paths import HEALTH_PATH, MCP_PATH, METADATA_PATH, METRICS_PATH, view_of
from toolpost.endpoints.http.refusal import Refused, forbidden, overloaded
from toolpost.endpoints.http.request import HttpRequest, Receive, Scope, Send
from toolpost.endpoints.http.routes import Routes
from toolpost.endpoints.http.sessions import Session, SessionListener, Sessions
from toolpost.endpoints.in_flight import CANCEL_REQUEST, CANCELLED
from toolpost.endpoints.sdk.http import SdkHttp
from toolpost.endpoints.sdk.lazy import LazySdk, parameter_header_problem
from toolpost.endpoints.tasks.extension import TASK_METHODS, task_id
from toolpost.fairness import EndpointShares
from toolpost.metrics import CONTENT_TYPE as METRICS_TYPE
from toolpost.middleware.call import Call
from toolpost.protocol import era, rpc
from toolpost.protocol.extensions import is_extension_notification
from toolpost.protocol.rpc import INVALID_REQUEST, PARSE_ERROR, ProtocolError, RpcMessage

LISTEN: Final = "subscriptions/listen"


class HttpEndpoint:
    """The ASGI application. `run` must be running beside it: it keeps the SDK's part alive."""

    def __init__(
        self,
        handler: CallHandler,
        sdk: LazySdk,
        access: Access,
        *,
        body_limit: int,
        health: Callable[[], JsonObject],
        metrics: Callable[[], Awaitable[str]],
        routes: Sequence[Routes],
        shares: EndpointShares,
        preload_sdk: bool = True,
        continues_traces: bool = False,
        on_session_end: SessionListener | None = None,
    ) -> None:
        """`continues_traces`: the trace context of HTTP headers counts too, where `_meta` has none."""
        self.continues_traces = continues_traces
        self._handler = handler
        self._access = access
        self._routes = routes
        self.body_limit = body_limit
        self._health = health
        self._metrics = metrics
        self._streams = shares.streams
        self._sessions = Sessions(shares.sessions, on_session_end)
        self._sdk = SdkHttp(sdk, self._sessions, shares.streams, body_limit=body_limit, preload_sdk=preload_sdk)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
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
            # The path names a server or tag that does not exist.
            message = f"{error.message} ({error.hint})" if error.hint else error.message
            await send_json(send, Refused(404, ErrorCode.NOT_FOUND, message).body, status=404)
        except Exception as error:  # noqa: BLE001 (a bug gets an answer too)
            if is_out_of_descriptors(error):
                warn_exhausted("answering a request")
                busy = exhausted()
                await send_json(send, busy.body, status=busy.status, headers=busy.headers)
            else:
                await send_json(send, rpc.internal_error(error).as_response(), status=500)

    @property
    def requires_token(self) -> bool:
        """Whether every request needs a token."""
        return self._access.roster.anonymous is None

    def read_head(self, raw: bytes) -> RequestHead | None:
        """Parse and authenticate the head of a plain request; None leaves it to ASGI, whose answer says what is wrong."""
        headers = split_head(raw)
        if headers is None:
            return None
        try:
            admission = self._access.find_admission(headers)
        except Refused:
            return None
        return parse_head(headers, admission, with_trace=self.continues_traces) if admission is not None else None

    def start(self, connection: ServerConnection, head: RequestHead, body: bytes) -> bool:
        """Answer a plain `tools/call` or `tools/list` without ASGI; False leaves it to `__call__`."""
        try:
            message = rpc.parse(body)
            if message.method not in METHODS or message.id is None or not self._handler.is_ready(head.admission.view):
                return False
            session = None if head.is_stateless else self._sessions.find(head.session_id, head.admission.caller)
            if session is None and not head.is_stateless:
                return False
            if message.method == "tools/list":
                return self._list_without_asgi(connection, head, message, session)
            return self._call_without_asgi(connection, head, message, session)
        except ProtocolError:
            return False

    def _list_without_asgi(
        self, connection: ServerConnection, head: RequestHead, message: RpcMessage, session: Session | None
    ) -> bool:
        cursor, meta = rpc.list_params(message)
        if session is None and not _is_plainly_stateless(head, message, meta, None):
            return False
        assert message.id is not None
        revision = session.revision if session else era.STATELESS
        connection.request_id = new_call_id()
        caller, view = session.caller if session else head.admission.caller, head.admission.view
        if head.trace_headers is not None:
            meta = continue_from_headers(meta, head.trace_headers)
        connection.respond(self._handler.list_tools(message.id, cursor, revision, caller=caller, meta=meta, view=view))
        return True

    def _call_without_asgi(
        self, connection: ServerConnection, head: RequestHead, message: RpcMessage, session: Session | None
    ) -> bool:
        assert message.id is not None
        name, arguments, meta, resumption = rpc.call_params(message)
        if (
            "progressToken" in meta
            or era.LOG_LEVEL in meta
            or (session is None and not _is_plainly_stateless(head, message, meta, name))
            or resumption is not None
            or (session is not None and message.key in session.calls)
        ):
            return False
        client_channel = None
        if session is not None and session.client.is_open and head.takes_events:
            client_channel = HandshakeClientChannel(session.client, connection.sender(lambda: session.open_log(call)))
        caller = session.caller if session else head.admission.caller
        view = head.admission.view
        if head.trace_headers is not None:
            meta = continue_from_headers(meta, head.trace_headers)
        call = self._handler.admit(
            message.id, name, arguments, meta, caller=caller, notify=None, view=view, client_channel=client_channel
        )
        if session is None and call.mirrors_arguments:
            return False
        connection.request_id = call.id
        if session is not None:
            session.calls.add(message.key, call)
        else:
            connection.set_call(call)
        revision = session.revision if session else era.STATELESS
        start_task = partial(self._start_task, connection, message, call, session)
        send = connection.respond if session is None else partial(_respond_in_session, connection, session, message.key)
        if not self._handler.try_fast_path(message.id, call, revision, start_task=start_task, send=send):
            start_task()
        return True

    def _start_task(
        self, connection: ServerConnection, message: RpcMessage, call: Call, session: Session | None
    ) -> None:
        connection.start_task(self._answer(connection, message, call, session))

    async def _answer(
        self, connection: ServerConnection, message: RpcMessage, call: Call, session: Session | None
    ) -> None:
        assert message.id is not None
        status, revision = 200, session.revision if session else era.STATELESS
        try:
            # Not through `_run_call`: nearly every call of a function passes here.
            body = await self._handler.answer(message.id, call, revision)
        except ProtocolError as error:
            status, body = _status_of(error.code, revision.version), error.as_response()
        finally:
            if session is not None:
                session.calls.remove(message.key)
        connection.respond(body, status)

    async def _run_call(self, request_id: bytes, call: Call, revision: era.Revision) -> tuple[int, bytes]:
        """Run a call and return the status and the body of its response."""
        try:
            return 200, await self._handler.answer(request_id, call, revision)
        except ProtocolError as error:
            return _status_of(error.code, revision.version), error.as_response()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the SDK's tasks, and end what removed callers have open, until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow_roster)
                await self._sdk.run(task_status=task_status)
        finally:
            self._sessions.end_all()

    async def _follow_roster(self) -> None:
        """Whenever the callers are replaced, update all views and end the sessions of removed ones."""
        replaced = self._access.roster.replaced
        while True:
            await replaced.wait()
            # Read before the work, which takes a while: the callers may be replaced again by its end.
            replaced = self._access.roster.replaced
            self._sdk.update_views(self._access.roster.scopes_of)
            for session_id in self._sessions.list_of_removed(self._access.roster.is_known):
                await self._sdk.end(session_id)

    async def _route(self, request: HttpRequest) -> None:
        if (view := view_of(request.path)) is not None:
            admission = await self._access.admit(request)
            request.view = view.within(admission.scopes).of_owner(admission.view.owner)
            try:
                await self._handler.prepare(request.view)
                self._handler.gateway.catalog.narrow(request.view)
            except NotFound:
                self._handler.gateway.refusals.note_unknown("endpoint", request.path, admission.caller)
                raise
            if request.method == "POST":
                await self._post(request, admission)
            elif (lost := self._find_lost_stream(request, admission.caller)) is not None:
                with _convert_overload(), self._streams.held(admission.caller.id):
                    await resume(*lost, request.receive, request.send)
            else:
                async with close_on_removal(request, self._access.roster, admission):
                    await self._sdk.serve(request, admission.caller, request.receive)
        elif request.path.startswith(METADATA_PATH):
            await self._answer_metadata(request)
        elif request.path == HEALTH_PATH:
            await self._answer_health(request)
        elif request.path == METRICS_PATH:
            await self._answer_metrics(request)
        elif (routes := self._find_routes(request.path)) is not None:
            await routes.answer(request)
        elif b"text/html" in request.headers.get(b"accept", b"") and (home := self._find_routes("/")) is not None:
            # A browser that opens an address where there is nothing: the console says what there is.
            await home.answer(request)
        else:
            raise Refused(404, ErrorCode.NOT_FOUND, f"Not found; MCP is at {MCP_PATH}")

    def _find_routes(self, path: str) -> Routes | None:
        return next((each for each in self._routes if each.serves(path)), None)

    def _find_lost_stream(self, request: HttpRequest, caller: Caller) -> tuple[EventLog, int] | None:
        """Return the stream that a client of the handshake era reconnects to, and the last event that it has; else None."""
        last = request.headers.get(b"last-event-id")
        if request.method != "GET" or last is None or not request.accepts(b"text/event-stream"):
            return None
        session = self._session_of(request, caller)
        return session.logs.find(last.decode("latin-1")) if session is not None else None

    async def _answer_metadata(self, request: HttpRequest) -> None:
        """Send the protected resource metadata of RFC 9728."""
        self._access.check_host_and_origin(request.headers)
        metadata = self._access.roster.metadata(request.path)
        if metadata is None:
            raise Refused(404, ErrorCode.NOT_FOUND, "No authorization server is configured here")
        await send_json(request.send, rpc.encode(metadata), headers=[(b"access-control-allow-origin", b"*")])

    async def _answer_health(self, request: HttpRequest) -> None:
        try:
            admission = await self._access.admit(request)
        except Refused:
            admission = None
        if admission is None or admission.scopes:
            # A caller that does not see everything learns that the server is up, and nothing else.
            await send_json(request.send, b'{"status":"ok"}')
            return
        await send_json(request.send, rpc.encode(self._health()))

    async def _answer_metrics(self, request: HttpRequest) -> None:
        if not (await self._access.admit(request)).is_admin:
            raise forbidden("Only a caller with `admin = true` may read metrics")
        await send_text(request.send, (await self._metrics()).encode(), METRICS_TYPE)

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
                async with close_on_removal(request, self._access.roster, admission):
                    await self._sdk.serve(request, caller, request.replay(body), message)
            elif message.id is None and _is_plain_extension(message, request):
                await self._sdk.notify_extension(message, caller, request.view)
                await _accept(request.send)
            elif not await self._answer_without_sdk(message, request, caller):
                await self._sdk.serve(request, caller, request.replay(body), message)
        except ProtocolError as error:
            self._handler.note_refused(error, caller, request.id)
            await send_json(request.send, error.as_response(), status=_status_of(error.code, request.version))

    async def _answer_without_sdk(self, message: RpcMessage, request: HttpRequest, caller: Caller) -> bool:
        """Answer what needs no SDK; False leaves the message to it."""
        session = None
        if request.version != era.STATELESS.version:
            session = self._session_of(request, caller)
            if session is None:
                return False
            if message.method in (CANCELLED, CANCEL_REQUEST):
                return await _cancel(session, message, request.send)
            if message.method is None and message.id is not None and session.client.take_response(message):
                await _accept(request.send)
                return True
            if message.method == "logging/setLevel":
                session.client.set_log_level(rpc.params_object(message))
        if message.method in TASK_METHODS and session is None and message.id is not None:
            meta = rpc.params_object(message).get("_meta")
            _check_revision(None, message, meta if isinstance(meta, dict) else {}, request, task_id(message))
            await send_json(request.send, await self._handler.tasks.answer(message, caller))
            return True
        if message.method not in METHODS or message.id is None:
            return False
        if not request.accepts(b"application/json"):
            raise Refused(406, ErrorCode.INVALID_REQUEST, "Send `Accept: application/json, text/event-stream`")
        if message.method == "tools/list":
            await self._list(message, session, request, caller)
        else:
            await self._call(message, session, request, caller)
        return True

    def _session_of(self, request: HttpRequest, caller: Caller) -> Session | None:
        if request.version and request.version not in era.HANDSHAKE_VERSIONS:
            return None
        return self._sessions.find(request.session_id, caller, request.view)

    async def _list(self, message: RpcMessage, session: Session | None, request: HttpRequest, caller: Caller) -> None:
        assert message.id is not None
        cursor, meta = rpc.list_params(message)
        revision = _check_revision(session, message, meta, request, None)
        if self.continues_traces:
            meta = continue_from_headers(meta, request.headers)
        caller = session.caller if session else caller
        page = self._handler.list_tools(message.id, cursor, revision, caller=caller, meta=meta, view=request.view)
        await send_json(request.send, page)

    async def _call(self, message: RpcMessage, session: Session | None, request: HttpRequest, caller: Caller) -> None:
        assert message.id is not None
        name, arguments, meta, resumption = rpc.call_params(message)
        revision = _check_revision(session, message, meta, request, name)
        may_notify = progress_token(meta) is not None or era.LOG_LEVEL in meta
        may_notify = may_notify or (session is not None and session.client.is_open)
        stream = EventStream(request.send, session) if may_notify and request.accepts(b"text/event-stream") else None
        client_channel = HandshakeClientChannel(session.client, stream.notify) if session and stream else None
        if session is not None:
            _check_new(session, message)
        if self.continues_traces:
            meta = continue_from_headers(meta, request.headers)
        call = self._handler.admit(
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
        request.id = call.id
        if session is None and call.mirrors_arguments:
            await _check_parameter_headers(call, arguments, request, message.id)
        with _track_call(session, message, call):
            running = self._run_call(message.id, call, revision)
            if stream is None:
                outlives = session is not None
                await answer_quietly(call, running, request.receive, request.send, outlives=outlives)
            else:
                await stream.answer(call, running, request.receive)


def _respond_in_session(connection: ServerConnection, session: Session, key: str, body: bytes) -> None:
    session.calls.remove(key)
    connection.respond(body)


def _is_plain_extension(message: RpcMessage, request: HttpRequest) -> bool:
    """Whether a notification is an extension's, and of the stateless era, in which the SDK drops all notifications."""
    return request.version == era.STATELESS.version and is_extension_notification(message.method or "")


def _is_plainly_stateless(head: RequestHead, message: RpcMessage, meta: JsonObject, name: str | None) -> bool:
    """Whether headers and `_meta` are complete and agree; if not, `_check_revision` reports what is wrong."""
    return (
        meta.get(era.PROTOCOL_VERSION) == era.STATELESS.version
        and era.CLIENT_CAPABILITIES in meta
        and head.mcp_method == message.method
        and (name is None or head.mcp_name == name)
    )


def _check_revision(
    session: Session | None, message: RpcMessage, meta: JsonObject, request: HttpRequest, name: str | None
) -> era.Revision:
    """Return the revision of a request; raise `ProtocolError` if its headers and body disagree."""
    if session is not None:
        return session.revision
    assert message.id is not None
    assert message.method is not None
    era.check_envelope_keys(meta, request_id=message.id)
    era.check_stateless_headers(request.headers, meta=meta, method=message.method, name=name, request_id=message.id)
    return era.STATELESS


async def _check_parameter_headers(call: Call, arguments: JsonObject, request: HttpRequest, request_id: bytes) -> None:
    text = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
    schema = call.tool.contract.arguments_schema.raw
    if (problem := await parameter_header_problem(schema, arguments, text)) is not None:
        # A call that was waiting has used its state: no other request could continue it.
        call.cancel("the client came back with headers that do not match the body")
        raise ProtocolError(era.HEADER_MISMATCH, problem, request_id=request_id)


@contextmanager
def _convert_overload() -> Iterator[None]:
    """Convert `QueueOverloaded` into an HTTP refusal."""
    try:
        yield
    except QueueOverloaded as error:
        raise overloaded(error) from error


@contextmanager
def _track_call(session: Session | None, message: RpcMessage, call: Call) -> Iterator[None]:
    """Add a call to its session's calls in flight while it runs."""
    if session is None:
        yield
        return
    # Again: the check before admission was followed by an await.
    _check_new(session, message)
    key = message.key
    session.calls.add(key, call)
    try:
        yield
    finally:
        session.calls.remove(key)


def _check_new(session: Session, message: RpcMessage) -> None:
    """Refuse an id that is in flight already. Over HTTP the refusal is the response of its own request, and has its id."""
    try:
        session.calls.check_new(message.key)
    except ProtocolError as error:
        error.request_id = message.id or b"null"
        raise


async def _cancel(session: Session, message: RpcMessage, send: Send) -> bool:
    """Stop a call of this session; its own response then has `CANCELLED`."""
    if not session.calls.cancel(message):
        return False
    await _accept(send)
    return True


async def _accept(send: Send) -> None:
    await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def _status_of(code: int, version: str) -> int:
    """Return the HTTP status of a JSON-RPC error: by its code in the stateless era; before, 400 for malformed requests only."""
    if version != era.STATELESS.version:
        return 400 if code in (INVALID_REQUEST, PARSE_ERROR) else 200
    return era.STATUS_OF.get(code, 200)
