"""`tools/list` and `tools/call`: parsed once, answered in bytes, the same on every transport and in both eras.

Transports handle the methods of MCP tasks, cancellations, and responses to requests of servers, and note the level of
`logging/setLevel`. Everything else goes through the official SDK (`sdk/`), which stays the authority on the protocol.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import anyio
import msgspec
from anyio import to_thread

from toolpost.base.caller import Caller
from toolpost.base.ids import META_KEY, Json, JsonObject, TraceId
from toolpost.base.trace_context import TraceContext, parse_traceparent, read_trace_context
from toolpost.contracts.envelope import ResultStyle
from toolpost.contracts.errors import UnknownTool
from toolpost.discovery import EVERYTHING, View
from toolpost.discovery.automatic import AUTOMATIC_NAMES
from toolpost.discovery.catalog import SCOPES_LIMIT, VIEWS_LIMIT
from toolpost.endpoints.input_rounds import RoundsChannel, RoundsChannels
from toolpost.endpoints.listing import SERVER_STAMP, Listing
from toolpost.endpoints.tasks.endpoint import TaskEndpoint
from toolpost.endpoints.tasks.extension import declares_tasks
from toolpost.gateway import Answer, CallObserver, Gateway, begin_observed
from toolpost.middleware import Call, CheckedResult, ProgressNotification
from toolpost.protocol.era import CLIENT_CAPABILITIES, LOG_LEVEL, SERVER_INFO, STATELESS, Revision
from toolpost.protocol.rpc import INVALID_PARAMS, ProtocolError, Resumption, encode, result_response
from toolpost.providers.input_required import is_input_required
from toolpost.upstreams.server_requests import ClientChannel

METHODS: Final = frozenset({"tools/call", "tools/list"})

INLINE_VIEW_TOOLS: Final = 2_000
"""With more tools than this, what a view shows is computed in a thread: 20,000 take 140 ms."""

INLINE_WRITE_BYTES: Final = 1024 * 1024
"""A longer answer is written in a thread: JSON inside a JSON string takes up to 8 ms for each megabyte."""

Notify = Callable[[bytes], None]

_ENVELOPE_SUCCESS: Final = (
    b'{"content":[{"type":"text","text":%b}],"isError":false,"structuredContent":%b,"resultType":"complete",'
    b'"_meta":{"' + META_KEY.encode() + b'":{"callId":"%b"},' + SERVER_STAMP[1:-1].replace(b"%", b"%%") + b"}}"
)

_CALL_ID_META: Final = (
    b'{"' + META_KEY.encode() + b'":{"callId":"%b"},' + SERVER_STAMP[1:-1].replace(b"%", b"%%") + b"}"
)
_KEYS: Final = {key: encode(key) for key in ("content", "structuredContent", "isError", "resultType", "_meta")}


class CallHandler:
    """Answers the two methods, for every endpoint."""

    def __init__(
        self,
        gateway: Gateway,
        listing: Listing,
        rounds: RoundsChannels,
        tasks: TaskEndpoint,
        *,
        open_owner: Callable[[str], Awaitable[None]],
    ) -> None:
        """`open_owner` learns the tools that servers list to an owner of credentials."""
        self.gateway = gateway
        self.listing = listing
        """Replaced when the tools change."""
        self.rounds = rounds
        self.tasks = tasks
        self._open_owner = open_owner
        self._narrowing_lock = anyio.Lock()
        self._narrowed: tuple[Listing, dict[View, None]] = (listing, {})
        """The views of a listing that are computed, the latest last."""

    def is_ready(self, view: View) -> bool:
        """Whether what a view shows is available without going through thousands of tools."""
        if view.owner and not self.gateway.catalog.is_ready_for(view.owner):
            return False
        listing, ready = self._narrowed
        is_short = view is EVERYTHING or len(self.gateway.catalog) <= INLINE_VIEW_TOOLS
        return is_short or (listing is self.listing and view in ready)

    async def prepare(self, view: View) -> None:
        """Compute what a view shows, in a thread if there are thousands of tools; call it before the view is used.

        Raises `NotFound` for a server or tag that does not exist, as `Catalog.narrow` does.
        """
        if self.is_ready(view):
            return
        if view.owner:
            await self._open_owner(view.owner)
        async with self._narrowing_lock:
            # Tools may change while a thread computes: what it made then belongs to a listing that is gone.
            while not self.is_ready(view):
                listing = self.listing
                if len(self.gateway.catalog) > INLINE_VIEW_TOOLS:
                    await to_thread.run_sync(listing.narrow, view)
                else:
                    listing.narrow(view)
                ready = self._narrowed[1] if self._narrowed[0] is listing else {}
                # Half of what the caches of catalog and listing hold of this kind: what counts as ready is then in both.
                limit = (SCOPES_LIMIT if view.path == EVERYTHING else VIEWS_LIMIT) // 2
                of_its_kind = [known for known in ready if (known.path == EVERYTHING) == (view.path == EVERYTHING)]
                gone = set(of_its_kind[: len(of_its_kind) - limit + 1]) if len(of_its_kind) >= limit else set[View]()
                self._narrowed = listing, dict.fromkeys([*(known for known in ready if known not in gone), view])

    def list_tools(
        self,
        request_id: bytes,
        cursor: str | None,
        revision: Revision,
        *,
        caller: Caller,  # noqa: ARG002 (for `ObservedCallHandler`, as `meta`)
        meta: JsonObject,  # noqa: ARG002
        view: View = EVERYTHING,
    ) -> bytes:
        listing = self.listing.narrow(view)
        return result_response(request_id, listing.page(revision, cursor, request_id=request_id))

    def admit(
        self,
        request_id: bytes,
        name: str,
        arguments: JsonObject,
        meta: JsonObject,
        *,
        caller: Caller,
        notify: Notify | None,
        view: View = EVERYTHING,
        client_channel: ClientChannel | None = None,
        resumption: Resumption | None = None,
    ) -> Call:
        """Make a call of a `tools/call`; raise `ProtocolError` for an unknown name.

        `client_channel` is a client of the handshake era; one of the stateless era declares its capabilities in `meta`.
        """
        token = progress_token(meta)
        emit = None
        is_able = bool(meta.get(CLIENT_CAPABILITIES))
        if is_able and client_channel is None and resumption is None and declares_tasks(meta):
            client_channel = self.tasks.client_channel_for(caller, meta)
            emit = self.tasks.hear
        elif notify is not None and token is not None:
            emit = lambda note: notify(_progress_notification(token, note))  # noqa: E731 (two lines, one use)
        if client_channel is None and (is_able or LOG_LEVEL in meta):
            client_channel = RoundsChannel(self.rounds, caller, meta, notify, bound_to=_bound_to(name, arguments))
        if resumption is not None:
            bound_to = _bound_to(name, arguments)
            found = self.rounds.resume(resumption, caller=caller, bound_to=bound_to, request_id=request_id)
            if isinstance(found, RoundsChannel):
                return _continue(found, notify, emit)
            resumption = found
        try:
            if not self.listing.serves(name):
                raise _not_served(name)
            return self.gateway.admit(
                caller=caller,
                name=name,
                arguments=arguments,
                trace_id=_trace_id(meta),
                on_progress=emit,
                meta=meta,
                view=view,
                client_channel=client_channel,
                resumption=resumption,
            )
        except UnknownTool as error:
            raise self._refuse(error, request_id, meta, caller) from error

    def _refuse(self, error: UnknownTool, request_id: bytes, meta: JsonObject, caller: Caller) -> ProtocolError:  # noqa: ARG002
        return ProtocolError(INVALID_PARAMS, error.message, data=error.as_object(), request_id=request_id)

    def note_refused(self, error: ProtocolError, caller: Caller, request_id: str | None = None) -> None:
        """Note a request that is answered with a protocol error: an unknown tool, malformed parameters, not JSON.

        `request_id` is what its response has in the header `X-Request-Id`, over HTTP.
        """
        if isinstance(unknown := error.__cause__, UnknownTool):
            is_served = self.listing.serves(str(unknown.details.get("tool")))
            self.gateway.note_unknown_tool(unknown, caller, is_served=is_served, request=request_id)
        else:
            self.gateway.refusals.note(caller, code=error.code, reason=error.message[:200], request=request_id)

    def try_fast_path(
        self,
        request_id: bytes,
        call: Call,
        revision: Revision,
        *,
        start_task: Callable[[], None],
        send: Callable[[bytes], None],
    ) -> bool:
        """Answer a call through `send` without a task, or by one that `start_task` starts later; False: `answer` must follow."""
        # Only tools of servers have one: the call of a function gets a task.
        if call.tool.fast_request is None:
            return False
        client_channel = call.context.client_channel
        # A call that may outlive its request runs in a task of its own.
        if client_channel is not None and (isinstance(client_channel, RoundsChannel) or self.tasks.keeps(call)):
            return False

        def write(answer: Answer) -> bytes:
            return result_response(request_id, write_call_result(answer, revision))

        return self.gateway.try_fast_path(call, start_task=start_task, write=write, send=send)

    async def answer(self, request_id: bytes, call: Call, revision: Revision) -> bytes:
        """Run the call and return its response, or the handle of an MCP task; raise a server's own protocol error."""
        client_channel = call.context.client_channel
        if client_channel is not None and self.tasks.keeps(call):
            started = await self.tasks.begin(request_id, call)
            if isinstance(started, bytes):
                return started
            answer = started
        elif client_channel is None or not client_channel.takes_input_required:
            answer = await self.gateway.call(call)
        else:
            assert isinstance(client_channel, RoundsChannel)
            outcome = await self.rounds.run_round(client_channel, call, lambda: self.gateway.call(call))
            if isinstance(outcome, bytes):
                meta = b'"_meta":{"%b":{"callId":"%b"},%b}' % (META_KEY.encode(), call.id.encode(), SERVER_STAMP[1:-1])
                return result_response(request_id, b"{%b,%b}" % (outcome, meta))
            answer = outcome
        if (refusal := answer.refusal) is not None:
            raise ProtocolError(refusal.rpc_code, refusal.message, data=refusal.data, request_id=request_id)
        passed = answer.result.upstream_fields if answer.result is not None else None
        if answer.result is not None and passed is not None and is_input_required(passed):
            answer = Answer(call, self._seal_state(answer.result, passed, client_channel))
        if len(answer.payload) + sum(map(_length, answer.content)) > INLINE_WRITE_BYTES:
            return await to_thread.run_sync(_write_response, request_id, answer, revision)
        return _write_response(request_id, answer, revision)

    def end_session(self, transport: str, revision: Revision, seconds: float) -> None:
        """Note the end of a client's session on stdio; for `ObservedCallHandler`."""

    def _seal_state(
        self, result: CheckedResult, passed: Mapping[str, msgspec.Raw], request: ClientChannel | None
    ) -> CheckedResult:
        """Sign the server's own state, so that only this caller can bring it back."""
        state = msgspec.json.decode(passed.get("requestState", b"null"))
        if not isinstance(state, str) or not isinstance(request, RoundsChannel):
            return result
        sealed = {**passed, "requestState": msgspec.Raw(encode(self.rounds.seal_server_state(state, request)))}
        return msgspec.structs.replace(result, upstream_fields=sealed, encoded=encode(sealed))


class ClientRequest(msgspec.Struct, kw_only=True):
    """A request of a client that is no call: of another method, or refused before it became a call."""

    method: str
    target: str | None = None
    """The name of a prompt, or the URI of a resource."""
    id: bytes
    """As JSON."""
    caller: Caller
    version: str | None = None
    """Of MCP."""
    parent: TraceContext | None
    began_ns: int = msgspec.field(default_factory=time.monotonic_ns)
    traceparent: str = ""
    """Of the request's own span, which servers see; made by `begin_request`."""


class RequestObserver(CallObserver, Protocol):
    """Called for requests as they came: also for what a call in the gateway does not know of its request."""

    def describe(self, call: Call, request_id: bytes, version: str, /) -> None:
        """Note the request of a call, and its revision of MCP; once more if the fast path has left the call to a task."""
        ...

    def begin_request(self, request: ClientRequest, /) -> str:
        """Note a request that is no call; return its `traceparent`."""
        ...

    def end_request(
        self,
        request: ClientRequest,
        /,
        *,
        status: int | None = None,
        message: str | None = None,
        exception: str | None = None,
    ) -> None:
        """Note the end of a request: the code and the message of a JSON-RPC error, or the class of another exception."""
        ...

    def end_session(self, transport: str, version: str, seconds: float, /) -> None:
        """Note the end of a client's session, which began with a handshake."""
        ...


class ObservedCallHandler(CallHandler):
    """A handler that tells an observer of its requests; `app` chooses it where a part brings one."""

    def __init__(self, *arguments: Any, observer: RequestObserver, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.observer = observer

    def list_tools(
        self,
        request_id: bytes,
        cursor: str | None,
        revision: Revision,
        *,
        caller: Caller,
        meta: JsonObject,
        view: View = EVERYTHING,
    ) -> bytes:
        request = ClientRequest(
            method="tools/list",
            id=request_id,
            caller=caller,
            version=revision.version,
            parent=read_trace_context(meta),
        )
        request.traceparent = self.observer.begin_request(request)
        try:
            page = super().list_tools(request_id, cursor, revision, caller=caller, meta=meta, view=view)
        except ProtocolError as error:
            self.observer.end_request(request, status=error.code, message=error.message)
            raise
        self.observer.end_request(request)
        return page

    def try_fast_path(
        self,
        request_id: bytes,
        call: Call,
        revision: Revision,
        *,
        start_task: Callable[[], None],
        send: Callable[[bytes], None],
    ) -> bool:
        self._begin(call, request_id, revision)
        return super().try_fast_path(request_id, call, revision, start_task=start_task, send=send)

    async def answer(self, request_id: bytes, call: Call, revision: Revision) -> bytes:
        self._begin(call, request_id, revision)
        return await super().answer(request_id, call, revision)

    def _begin(self, call: Call, request_id: bytes, revision: Revision) -> None:
        if call.observed is None:
            begin_observed(self.observer, call)
        self.observer.describe(call, request_id, revision.version)

    def _refuse(self, error: UnknownTool, request_id: bytes, meta: JsonObject, caller: Caller) -> ProtocolError:
        refusal = super()._refuse(error, request_id, meta, caller)
        request = ClientRequest(method="tools/call", id=request_id, caller=caller, parent=read_trace_context(meta))
        request.traceparent = self.observer.begin_request(request)
        self.observer.end_request(request, status=refusal.code, message=refusal.message)
        return refusal

    def end_session(self, transport: str, revision: Revision, seconds: float) -> None:
        self.observer.end_session(transport, revision.version, seconds)


def _length(value: Json) -> int:
    """Return the characters of a content block: the long ones are in its values, or in those of its resource."""
    if isinstance(value, dict):
        return sum(map(_length, value.values()))
    return len(value) if isinstance(value, str) else 0


def _write_response(request_id: bytes, answer: Answer, revision: Revision) -> bytes:
    return result_response(request_id, write_call_result(answer, revision))


def _bound_to(name: str, arguments: JsonObject) -> str:
    """Name the tool that a state is valid for, also where another tool runs it."""
    return f"{name} {arguments.get('toolName')}" if name in AUTOMATIC_NAMES else name


def _continue(
    request: RoundsChannel, notify: Notify | None, emit: Callable[[ProgressNotification], None] | None
) -> Call:
    """Attach a waiting call to the request of its next round."""
    call = request.operation
    assert isinstance(call, Call)
    request.send = notify
    if call.progress is not None:
        call.progress.redirect(emit)
    return call


def write_call_result(answer: Answer, revision: Revision = STATELESS) -> bytes:
    """Write an answer as the result of a `tools/call`."""
    result = answer.result
    if result is not None and result.upstream_fields is not None:
        return _write_passthrough_result(answer, result, result.upstream_fields, revision)
    is_bare = result is not None and not result.content and answer.call.requested_name is None
    if is_bare and answer.style is ResultStyle.ENVELOPE and revision.is_stateless:
        # Nearly every answer of a function: written from one template.
        payload = answer.payload
        return _ENVELOPE_SUCCESS % (encode(payload.decode()), payload, answer.call.id.encode())
    text, structured = _text_and_structure(answer)
    blocks = b"".join(b",%b" % encode(block) for block in answer.content)
    fields = [
        b'"content":[{"type":"text","text":%b}%b]' % (text, blocks),
        b'"isError":%b' % (b"true" if answer.is_error else b"false"),
    ]
    if structured and revision.has_structured_content:
        fields.append(b'"structuredContent":%b' % answer.payload)
    if revision.is_stateless:
        fields.append(b'"resultType":"complete"')
    fields.append(b'"_meta":%b' % _meta(answer, revision))
    return b"{%b}" % b",".join(fields)


def _write_passthrough_result(
    answer: Answer, result: CheckedResult, passed: Mapping[str, msgspec.Raw], revision: Revision
) -> bytes:
    """Write an upstream server's own result: unchanged but for what the client's revision does not know."""
    is_bare = result.facts is None and answer.call.requested_name is None
    if is_bare and revision.is_stateless and "_meta" not in passed:
        # Nearly every result of a server: only our `_meta` is appended.
        kind = b"" if "resultType" in passed else b'"resultType":"complete",'
        return b'%b,%b"_meta":%b}' % (result.encoded[:-1], kind, _CALL_ID_META % answer.call.id.encode())
    fields = {key: bytes(value) for key, value in passed.items()}
    structured = fields.get("structuredContent", b"")
    if not revision.has_structured_content or (not revision.is_stateless and structured[:1] != b"{"):
        fields.pop("structuredContent", None)
    if revision.is_stateless:
        fields.setdefault("resultType", b'"complete"')
    else:
        fields.pop("resultType", None)
    fields["_meta"] = _meta(answer, revision, fields.get("_meta", b"{}"))
    return b"{%b}" % b",".join([b"%b:%b" % (_KEYS.get(key) or encode(key), value) for key, value in fields.items()])


def _meta(answer: Answer, revision: Revision, others: bytes = b"{}") -> bytes:
    """Write `_meta`: the server's own fields, ours, and in the stateless era our identity."""
    call, facts = answer.call, answer.facts
    is_bare = answer.code is None and facts is None and call.requested_name is None
    if is_bare and others == b"{}" and revision.is_stateless:
        return _CALL_ID_META % call.id.encode()
    found: JsonObject = {"callId": call.id} | ({"code": answer.code} if answer.code else {})
    if call.requested_name is not None:
        found["deprecated"] = {"name": call.requested_name, "use": call.tool.contract.name}
    found |= facts or {}
    parts = [b'"%b":%b' % (META_KEY.encode(), encode(found))]
    if revision.is_stateless:
        parts.append(SERVER_STAMP[1:-1])
    if others not in (b"{}", b"null"):
        kept = msgspec.json.decode(others, type=dict[str, msgspec.Raw])
        parts += [
            b"%b:%b" % (encode(key), bytes(raw)) for key, raw in kept.items() if key not in (META_KEY, SERVER_INFO)
        ]
    return b"{%b}" % b",".join(parts)


def _not_served(name: str) -> UnknownTool:
    """Make the error for a tool that this endpoint's mode does not serve, with how to reach it."""
    if name in AUTOMATIC_NAMES:
        hint = "this endpoint lists all its tools; `toolpost serve --mode automatic` or `--mode both` serves this one"
    else:
        hint = "this endpoint serves `automatic_mcp`, which finds tools, and `automatic_eval`, which runs them by name"
    return UnknownTool(f"Unknown tool `{name[:128]}`.", hint=hint, tool=name[:128])


def progress_token(meta: JsonObject) -> Json:
    """Return the token of a client that wants progress, None without one."""
    token = meta.get("progressToken")
    if token is None or isinstance(token, bool):
        return None
    return token if isinstance(token, str | int) else None


def _text_and_structure(answer: Answer) -> tuple[bytes, bool]:
    """Return the text of an answer, as a JSON string, and whether its payload is structured content too."""
    payload = answer.payload
    if answer.call.tool.contract.answers_text and not answer.is_error and payload[:1] == b'"':
        # The JSON of a string is the text itself (docs/decisions/0070).
        return payload, False
    # Any other text is JSON, so that a client may always parse it.
    text = encode(payload.decode())
    if answer.style is ResultStyle.PLAIN:
        # A bare error object would break the tool's own output schema, so it is text alone.
        return text, payload[:1] == b"{" and not answer.is_error
    return text, True


def _progress_notification(token: Json, note: ProgressNotification) -> bytes:
    params: JsonObject = {"progressToken": token, "progress": note.progress}
    if note.total is not None:
        params["total"] = note.total
    if note.message is not None:
        params["message"] = note.message
    params["_meta"] = {META_KEY: note.facts}
    return b'{"jsonrpc":"2.0","method":"notifications/progress","params":%b}' % encode(params)


def _trace_id(meta: JsonObject) -> TraceId | None:
    """Read the trace id out of a W3C `traceparent`."""
    found = parse_traceparent(meta["traceparent"]) if "traceparent" in meta else None
    return found.trace_id if found is not None else None
