"""Resources, prompts and completions of plugins and servers, as handlers of the SDK's server. Each read leaves an audit entry."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Final

import msgspec
from mcp.shared.exceptions import MCPError

from toolpost.audit import Outcome
from toolpost.base.ids import JsonObject, ToolName, new_call_id, new_trace_id
from toolpost.base.timestamps import format_time
from toolpost.contracts.digest import quick_digest
from toolpost.contracts.errors import ErrorCode, Forbidden, ToolpostError
from toolpost.discovery import View
from toolpost.discovery.views import tags_of
from toolpost.endpoints.http.paths import read_view
from toolpost.endpoints.input_rounds import RoundsChannel, RoundsChannels
from toolpost.endpoints.sdk.client import SdkClientChannel, open_notifier
from toolpost.endpoints.sdk.passthrough import stash_result
from toolpost.endpoints.sdk.read import TimedRead
from toolpost.endpoints.sdk.request_context import VIEWER
from toolpost.fairness import Shares
from toolpost.protocol.era import CLIENT_CAPABILITIES, STATELESS
from toolpost.protocol.extensions import is_extension_request
from toolpost.protocol.rpc import INTERNAL_ERROR, METHOD_NOT_FOUND, ProtocolError, Resumption, conceal_cause
from toolpost.providers.relay import Relay, make_unknown_prompt_error
from toolpost.providers.requester import Requester
from toolpost.providers.unknown_name import UnknownName
from toolpost.refusals import NAME_LIMIT, Refusals
from toolpost.store.audit import AuditLog
from toolpost.store.audit_values import AuditDraft
from toolpost.upstreams import ClientChannel, ServerRefused

_COMPLETE: Final[JsonObject] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

Handler = Callable[[Any, Any], Awaitable[JsonObject]]
Read = Callable[[JsonObject, Requester], Awaitable[tuple[str, JsonObject]]]


class RelayHandlers:
    """The handlers, and their common state."""

    def __init__(self, relay: Relay, audit: AuditLog, rounds: RoundsChannels, calls: Shares) -> None:
        """`calls` counts calls in flight; each of these requests is one."""
        self._relay = relay
        self._calls = calls
        self._audit = audit
        self._rounds = rounds

    def by_name(self) -> dict[str, Any]:
        """Return them by the argument names of the SDK's server."""
        handlers = {
            "on_list_resources": self._list_resources,
            "on_list_resource_templates": self._list_templates,
            "on_list_prompts": self._list_prompts,
            "on_read_resource": self._read_resource,
            "on_get_prompt": self._get_prompt,
            "on_completion": self._complete,
        }
        return {
            name: _bypass_models(wrap_handler(self._relay, self._calls, handler)) for name, handler in handlers.items()
        }

    async def _list_resources(self, context: Any, _params: Any) -> JsonObject:
        return {"resources": await self._visible(context, whole=True).resources(make_requester(context))}

    async def _list_templates(self, context: Any, _params: Any) -> JsonObject:
        return {"resourceTemplates": await self._visible(context, whole=True).templates(make_requester(context))}

    async def _list_prompts(self, context: Any, _params: Any) -> JsonObject:
        view = _view(context)
        prompts = await self._visible(context).prompts(make_requester(context))
        admitted = [prompt for prompt in prompts if view.admits(prompt["name"])]
        return {"prompts": [prompt | {"name": view.own_name(prompt["name"])} for prompt in admitted]}

    async def _read_resource(self, context: Any, params: Any) -> JsonObject:
        uri, servers, is_bare = str(params.uri), self._visible(context, whole=True), _view(context).is_bare
        return await self._read_in_rounds(
            context,
            uri,
            servers,
            lambda raw_params, requester: servers.read(uri, raw_params, requester, has_own_names=is_bare),
        )

    async def _get_prompt(self, context: Any, params: Any) -> JsonObject:
        name, servers = _view(context).full_name(params.name), self._visible(context)
        _check_prompt(name, _view(context))
        return await self._read_in_rounds(
            context, name, servers, lambda raw_params, requester: servers.prompt(name, raw_params, requester)
        )

    async def _complete(self, context: Any, params: Any) -> JsonObject:
        raw_params, is_prompt = _raw_params(context), params.ref.type == "ref/prompt"
        if is_prompt:
            name = _view(context).full_name(params.ref.name)
            _check_prompt(name, _view(context))
            raw_params["ref"] = raw_params["ref"] | {"name": name}
        return await self._visible(context, whole=not is_prompt).complete(raw_params, make_requester(context))

    def _visible(self, context: Any, *, whole: bool = False) -> Relay:
        """Return the servers that the caller sees; with `whole`, those of which it sees everything, because resources have no
        name that a pattern could match.
        """
        view = _view(context)
        shows = view.shows_whole if whole else view.shows
        return self._relay.select_visible(lambda name, provider: shows(name, tags_of(provider)))

    async def call_extension(self, context: Any, call: Read) -> JsonObject:
        """Handle a request that no revision of MCP knows, as a read whose notifications reach the client."""
        async with open_notifier(context) as tell:
            return await self._read_in_rounds(context, context.method, self._relay, call, tell)

    async def _read_in_rounds(
        self, context: Any, name: str, servers: Relay, read: Read, tell: Callable[[bytes], None] | None = None
    ) -> JsonObject:
        """Read something, in as many rounds as it takes: in the stateless era server requests become its result."""
        raw_params, caller = _raw_params(context), VIEWER.get().caller
        request, raw_params = self._find_request(context, f"{context.method} {name}", raw_params)
        timed_read = TimedRead(name, limit_s=servers.limit_s)
        if request is None:
            client_channel = None if is_stateless(context) else SdkClientChannel(context, caller, tell)
            return await self._read_and_record(
                context.method, raw_params, read, make_requester(context, client_channel), timed_read
            )
        request.send = tell
        requester = make_requester(context, request)
        run = lambda: self._read_and_record(context.method, raw_params, read, requester, timed_read)  # noqa: E731
        outcome = await self._rounds.run_round(request, request.operation or timed_read, run)
        if isinstance(outcome, bytes):
            asking: JsonObject = msgspec.json.decode(b"{%b}" % outcome)
            return asking
        if outcome.get("resultType") == "input_required" and isinstance(theirs := outcome.get("requestState"), str):
            return outcome | {"requestState": self._rounds.seal_server_state(theirs, request)}
        return outcome

    def _find_request(
        self, context: Any, bound_to: str, raw_params: JsonObject
    ) -> tuple[RoundsChannel | None, JsonObject]:
        """Return the multi-round request of a client of the stateless era that can be asked, else None; and the parameters."""
        if not is_stateless(context):
            return None, raw_params
        caller, meta = VIEWER.get().caller, (context.params or {}).get("_meta") or {}
        state, responses = raw_params.get("requestState"), raw_params.get("inputResponses")
        if state is not None or responses is not None:
            resumption = Resumption(responses=responses or {}, state=state)
            found = self._rounds.resume(resumption, caller=caller, bound_to=bound_to, request_id=b"null")
            if isinstance(found, RoundsChannel):
                return found, raw_params
            raw_params = {**raw_params, "inputResponses": found.responses, "requestState": found.state}
        if not meta.get(CLIENT_CAPABILITIES):
            return None, raw_params
        return RoundsChannel(self._rounds, caller, meta, None, bound_to=bound_to), raw_params

    async def _read_and_record(
        self, method: str, raw_params: JsonObject, read: Read, requester: Requester, timed_read: TimedRead
    ) -> JsonObject:
        """Read something and write its audit entry, whatever the outcome, before it is returned."""
        began, journal, slot = time.monotonic(), self._audit.call_journal, None
        is_extension = is_extension_request(method)
        asked = {key: value for key, value in raw_params.items() if is_extension or key in ("uri", "name", "arguments")}
        draft = AuditDraft(
            at_utc=format_time(time.time()),
            call_id=(call_id := new_call_id()),
            trace_id=new_trace_id(),
            caller=requester.caller.id,
            tool=ToolName(method),
            source="",
            contract="",
            schema_version=0,
            tooling_version="",
            arguments=quick_digest(asked),
        )

        def enter(server: str) -> None:
            nonlocal slot
            # A middleware may send it again: the first record of it is enough.
            if journal is not None and slot is None:
                slot = journal.enter(msgspec.structs.replace(draft, source=server))

        requester = replace(requester, call_id=call_id, operation=timed_read, enter=enter if is_extension else None)
        server, result, code, is_recorded = "", None, ErrorCode.HANDLER_ERROR, True
        outcome: Outcome = "error"
        try:
            server, result = await timed_read.run(lambda: read(raw_params, requester))
        except ToolpostError as error:
            code, outcome = error.code, "refused" if isinstance(error, Forbidden) else "error"
            raise
        except UnknownName:
            # As for an unknown tool: nothing was read, and a flood of names does not fill the audit. The log has it.
            is_recorded = False
            raise
        finally:
            if is_recorded:
                entry = msgspec.structs.replace(draft, source=server or timed_read.source).complete(
                    outcome=outcome if result is None else "ok",
                    code=code.value if result is None else None,
                    duration_ms=round((time.monotonic() - began) * 1000, 3),
                    result=None if result is None else quick_digest(result),
                )
                try:
                    await self._audit.append(entry)
                except Exception:
                    self._audit.append_late(entry, slot)
                    raise
            if journal is not None and slot is not None:
                journal.leave(slot)
        return result


def is_stateless(context: Any) -> bool:
    return bool(context.protocol_version == STATELESS.version)


def make_requester(context: Any, client_channel: ClientChannel | None = None) -> Requester:
    return Requester(caller=VIEWER.get().caller, meta=dict(context.meta or {}), client_channel=client_channel)


def _view(context: Any) -> View:
    return read_view(context.request.scope)


def _check_prompt(name: str, view: View) -> None:
    if not view.admits(name):
        raise make_unknown_prompt_error(name)


def _raw_params(context: Any) -> JsonObject:
    """Return the parameters as they came: the SDK has validated them, but its models drop fields that they do not know."""
    return {key: value for key, value in (context.params or {}).items() if key != "_meta"}


def _bypass_models(handler: Handler) -> Handler:
    """Let the result bypass the SDK's models."""

    @wraps(handler)
    async def answer(context: Any, params: Any) -> JsonObject:
        result = await handler(context, params)
        try:
            empty = stash_result(context.method, result)
        except ToolpostError as error:
            sent = conceal_cause(error)
            raise MCPError(INTERNAL_ERROR, sent.message, sent.as_object()) from error
        # Defaults for older servers; the SDK removes what an older client does not know.
        return _COMPLETE | empty

    return answer


def _note_refused(refusals: Refusals, context: Any, refusal: ServerRefused | ProtocolError) -> None:
    caller = VIEWER.get().caller
    if isinstance(refusal, UnknownName):
        refusals.note_unknown(refusal.kind, refusal.name, caller)
        return
    params = context.params or {}
    name = params.get("uri") or params.get("name")
    named = name[:NAME_LIMIT] if isinstance(name, str) else None
    refusals.note(caller, method=context.method, target=named, code=refusal.code)


def wrap_handler(relay: Relay, calls: Shares, handler: Handler) -> Handler:
    """Count a request as a call in flight, and convert errors: a server's own passes unchanged, ours has its code in `data`."""

    @wraps(handler)
    async def answer(context: Any, params: Any) -> JsonObject:
        if not relay.providers:
            # Where neither plugins nor servers have any, the methods do not exist; a server that is added later brings them.
            raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
        try:
            with calls.held(VIEWER.get().caller.id):
                return await handler(context, params)
        except (ServerRefused, ProtocolError) as refusal:
            _note_refused(relay.refusals, context, refusal)
            raise MCPError(refusal.code, refusal.message, refusal.data) from refusal
        except ToolpostError as error:
            sent = conceal_cause(error)
            raise MCPError(INTERNAL_ERROR, sent.message, sent.as_object()) from error

    return answer
