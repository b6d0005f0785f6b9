"""Resources, prompts and completions of servers, as handlers of the SDK's server; what is read leaves an entry in the audit."""

import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final

import msgspec
from mcp.shared.exceptions import MCPError

from toolpost.base.ids import JsonObject, ToolName, new_call_id, new_trace_id
from toolpost.contracts.digest import quick_digest
from toolpost.contracts.errors import ErrorCode, ToolpostError
from toolpost.discovery import View
from toolpost.discovery.views import tags_of
from toolpost.endpoints.http.paths import shown_by
from toolpost.endpoints.input_rounds import Held, Rounds
from toolpost.endpoints.sdk.client import SdkRespondent
from toolpost.endpoints.sdk.passthrough import leave
from toolpost.endpoints.sdk.read import Reading
from toolpost.endpoints.sdk.request_context import SEAT
from toolpost.middleware.audit import written
from toolpost.protocol.era import CLIENT_CAPABILITIES, MODERN
from toolpost.protocol.rpc import INTERNAL_ERROR, METHOD_NOT_FOUND, ProtocolError, Resumption
from toolpost.providers.relay import Relay, Requester, make_unknown_prompt_error
from toolpost.shares import Shares
from toolpost.store import AuditEntry, AuditLog
from toolpost.upstreams.server_requests import ClientChannel
from toolpost.upstreams.transport import ServerRefused

_COMPLETE: Final[JsonObject] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

Handler = Callable[[Any, Any], Awaitable[JsonObject]]
Read = Callable[[JsonObject, Requester], Awaitable[tuple[str, JsonObject]]]


class RelayHandlers:
    """The handlers, with what they share."""

    def __init__(self, relay: Relay, audit: AuditLog, rounds: Rounds, calls: Shares) -> None:
        """Take also the shares of calls in flight, of which each of these is one."""
        self._relay = relay
        self._calls = calls
        self._audit = audit
        self._rounds = rounds

    def by_name(self) -> dict[str, Any]:
        """Return them as the SDK's server takes them."""
        handlers = {
            "on_list_resources": self._list_resources,
            "on_list_resource_templates": self._list_templates,
            "on_list_prompts": self._list_prompts,
            "on_read_resource": self._read_resource,
            "on_get_prompt": self._get_prompt,
            "on_completion": self._complete,
        }
        return {name: _left(told(self._relay, self._calls, handler)) for name, handler in handlers.items()}

    async def _list_resources(self, context: Any, _params: Any) -> JsonObject:
        return {"resources": await self._seen(context, whole=True).resources(_asker(context))}

    async def _list_templates(self, context: Any, _params: Any) -> JsonObject:
        return {"resourceTemplates": await self._seen(context, whole=True).templates(_asker(context))}

    async def _list_prompts(self, context: Any, _params: Any) -> JsonObject:
        view = _view(context)
        prompts = await self._seen(context).prompts(_asker(context))
        admitted = [prompt for prompt in prompts if view.admits(prompt["name"])]
        return {"prompts": [prompt | {"name": view.own_name(prompt["name"])} for prompt in admitted]}

    async def _read_resource(self, context: Any, params: Any) -> JsonObject:
        uri, servers = str(params.uri), self._seen(context, whole=True)
        return await self._asked(context, uri, servers, lambda wish, asker: servers.read(uri, wish, asker))

    async def _get_prompt(self, context: Any, params: Any) -> JsonObject:
        name, servers = _view(context).full_name(params.name), self._seen(context)
        _check_prompt(name, _view(context))
        return await self._asked(context, name, servers, lambda wish, asker: servers.prompt(name, wish, asker))

    async def _complete(self, context: Any, params: Any) -> JsonObject:
        wish, is_prompt = _plain(context), params.ref.type == "ref/prompt"
        if is_prompt:
            name = _view(context).full_name(params.ref.name)
            _check_prompt(name, _view(context))
            wish["ref"] = wish["ref"] | {"name": name}
        return await self._seen(context, whole=not is_prompt).complete(wish, _asker(context))

    def _seen(self, context: Any, *, whole: bool = False) -> Relay:
        """Choose the servers that whoever asks sees; `whole` those of which they see what has no name to match."""
        view = _view(context)
        shows = view.shows_whole if whole else view.shows
        return self._relay.select_visible(lambda name, source: shows(name, tags_of(source)))

    async def _asked(self, context: Any, name: str, servers: Relay, read: Read) -> JsonObject:
        """Read something, in as many rounds as it takes: a client of the stateless era is asked by the result."""
        wish, caller = _plain(context), SEAT.get().caller
        held, wish = self._held(context, f"{context.method} {name}", wish)
        reading = Reading(name, limit_s=servers.limit_s)
        if held is None:
            client_channel = None if _is_modern(context) else SdkRespondent(context, caller)
            return await self._recorded(context.method, wish, read, _asker(context, client_channel), reading)
        asker = _asker(context, held)
        passing = lambda: self._recorded(context.method, wish, read, asker, reading)  # noqa: E731
        outcome = await self._rounds.answered(held, held.wish or reading, passing)
        if isinstance(outcome, bytes):
            asking: JsonObject = msgspec.json.decode(b"{%b}" % outcome)
            return asking
        if outcome.get("resultType") == "input_required" and isinstance(theirs := outcome.get("requestState"), str):
            return outcome | {"requestState": self._rounds.sealed_theirs(theirs, held)}
        return outcome

    def _held(self, context: Any, bound_to: str, wish: JsonObject) -> tuple[Held | None, JsonObject]:
        """Return what is held, or may be, for a client of the stateless era that can be asked; and what it wishes for now."""
        if not _is_modern(context):
            return None, wish
        caller, meta = SEAT.get().caller, (context.params or {}).get("_meta") or {}
        state, responses = wish.get("requestState"), wish.get("inputResponses")
        if state is not None or responses is not None:
            resumption = Resumption(responses=responses or {}, state=state)
            found = self._rounds.resumed(resumption, caller=caller, bound_to=bound_to, request_id=b"null")
            if isinstance(found, Held):
                return found, wish
            wish = {**wish, "inputResponses": found.responses, "requestState": found.state}
        if not meta.get(CLIENT_CAPABILITIES):
            return None, wish
        return Held(self._rounds, caller, meta, None, bound_to=bound_to), wish

    async def _recorded(
        self, method: str, wish: JsonObject, read: Read, asker: Requester, reading: Reading
    ) -> JsonObject:
        """Read something and put it on the record, whatever came of it, before it is given out."""
        began, at = time.monotonic(), time.time()
        server, result, code = "", None, ErrorCode.HANDLER_ERROR
        try:
            server, result = await reading.within(lambda: read(wish, asker))
        except ToolpostError as error:
            code = error.code
            raise
        finally:
            asked = {key: value for key, value in wish.items() if key in ("uri", "name", "arguments")}
            await self._audit.append(
                AuditEntry(
                    at_utc=written(at),
                    call_id=new_call_id(),
                    trace_id=new_trace_id(),
                    caller=asker.caller.id,
                    tool=ToolName(method),
                    source=server,
                    contract="",
                    schema_version=0,
                    tooling_version="",
                    arguments=quick_digest(asked),
                    outcome="error" if result is None else "ok",
                    code=code.value if result is None else None,
                    duration_ms=round((time.monotonic() - began) * 1000, 3),
                    result=None if result is None else quick_digest(result),
                )
            )
        return result


def _is_modern(context: Any) -> bool:
    return bool(context.protocol_version == MODERN.version)


def _asker(context: Any, client_channel: ClientChannel | None = None) -> Requester:
    return Requester(caller=SEAT.get().caller, meta=dict(context.meta or {}), client_channel=client_channel)


def _view(context: Any) -> View:
    return shown_by(context.request.scope)


def _check_prompt(name: str, view: View) -> None:
    if not view.admits(name):
        raise make_unknown_prompt_error(name)


def _plain(context: Any) -> JsonObject:
    """Return the parameters as they came; the SDK has judged them, and its models would drop what they do not know."""
    return {key: value for key, value in (context.params or {}).items() if key != "_meta"}


def _left(handler: Handler) -> Handler:
    """Let the answer go past the SDK's models."""

    @wraps(handler)
    async def answer(context: Any, params: Any) -> JsonObject:
        result = await handler(context, params)
        try:
            empty = leave(context.method, result)
        except ToolpostError as error:
            raise MCPError(INTERNAL_ERROR, error.message, error.as_object()) from error
        # What an older server does not say; the SDK leaves out what an older client does not know.
        return _COMPLETE | empty

    return answer


def told(relay: Relay, calls: Shares, handler: Handler) -> Handler:
    """Count a request as a call in flight, and pass a server's own protocol error on as it was; ours says its code in `data`."""

    @wraps(handler)
    async def answer(context: Any, params: Any) -> JsonObject:
        if not relay.providers:
            # A server that is added later brings these methods along.
            raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
        try:
            with calls.held(SEAT.get().caller.id):
                return await handler(context, params)
        except (ServerRefused, ProtocolError) as refusal:
            raise MCPError(refusal.code, refusal.message, refusal.data) from refusal
        except ToolpostError as error:
            raise MCPError(INTERNAL_ERROR, error.message, error.as_object()) from error

    return answer
