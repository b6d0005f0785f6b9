"""Resources, prompts and completions of servers, as handlers of the SDK's server; what is read leaves an entry in the audit."""

import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from toolpost.contracts.digest import quick_digest
from toolpost.contracts.errors import ErrorCode, ToolpostError
from toolpost.contracts.ids import JsonObject, ToolName, new_call_id, new_trace_id
from toolpost.discovery import View
from toolpost.discovery.views import tags_of
from toolpost.endpoints.paths import shown_by
from toolpost.endpoints.sdk_respondent import SdkRespondent
from toolpost.endpoints.seat import SEAT
from toolpost.pipeline.audit import written
from toolpost.protocol.rpc import INTERNAL_ERROR, METHOD_NOT_FOUND
from toolpost.sources.relay import Asker, Relay, unknown_prompt
from toolpost.store import AuditEntry, AuditLog
from toolpost.upstreams.wire import ServerRefused

_COMPLETE: Final[JsonObject] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}

Handler = Callable[[Any, Any], Awaitable[JsonObject]]
Reading = Callable[[Asker], Awaitable[tuple[str, JsonObject]]]


def relay_handlers(relay: Relay, audit: AuditLog) -> dict[str, Any]:
    """Return the handlers that the SDK's server takes, by their names there."""

    async def list_resources(context: Any, _params: Any) -> JsonObject:
        return {"resources": await _seen(relay, context, whole=True).resources(_asker(context))}

    async def list_templates(context: Any, _params: Any) -> JsonObject:
        return {"resourceTemplates": await _seen(relay, context, whole=True).templates(_asker(context))}

    async def list_prompts(context: Any, _params: Any) -> JsonObject:
        view = _view(context)
        prompts = await _seen(relay, context).prompts(_asker(context))
        return {"prompts": [prompt for prompt in prompts if view.admits(prompt["name"])]}

    async def read_resource(context: Any, params: Any) -> JsonObject:
        plain, servers = _plain(params), _seen(relay, context, whole=True)
        reading: Reading = lambda asker: servers.read(str(params.uri), plain, asker)  # noqa: E731
        return await _recorded(audit, "resources/read", plain, reading, context)

    async def get_prompt(context: Any, params: Any) -> JsonObject:
        _check_prompt(params.name, _view(context))
        plain, servers = _plain(params), _seen(relay, context)
        reading: Reading = lambda asker: servers.prompt(params.name, plain, asker)  # noqa: E731
        return await _recorded(audit, "prompts/get", plain, reading, context)

    async def complete(context: Any, params: Any) -> JsonObject:
        is_prompt = params.ref.type == "ref/prompt"
        if is_prompt:
            _check_prompt(params.ref.name, _view(context))
        return await _seen(relay, context, whole=not is_prompt).complete(_plain(params), _asker(context))

    handlers = {
        "on_list_resources": list_resources,
        "on_list_resource_templates": list_templates,
        "on_list_prompts": list_prompts,
        "on_read_resource": read_resource,
        "on_get_prompt": get_prompt,
        "on_completion": complete,
    }
    return {name: told(relay, handler) for name, handler in handlers.items()}


def _seen(relay: Relay, context: Any, *, whole: bool = False) -> Relay:
    """Choose the servers that whoever asks sees; `whole` those of which they see what has no name to match."""
    view = _view(context)
    shows = view.shows_whole if whole else view.shows
    return relay.seen_by(lambda name, source: shows(name, tags_of(source)))


def _asker(context: Any) -> Asker:
    meta = dict(context.meta or {})
    return Asker(caller=SEAT.get().caller, meta=meta, respondent=SdkRespondent(context, SEAT.get().caller))


async def _recorded(audit: AuditLog, method: str, params: JsonObject, reading: Reading, context: Any) -> JsonObject:
    """Read something and put it on the record, whatever came of it, before it is given out."""
    began, at = time.monotonic(), time.time()
    server, result, code = "", None, ErrorCode.HANDLER_ERROR
    try:
        server, result = await reading(_asker(context))
    except ToolpostError as error:
        code = error.code
        raise
    finally:
        asked = {key: value for key, value in params.items() if key in ("uri", "name", "arguments")}
        entry = audit.append(
            AuditEntry(
                at_utc=written(at),
                call_id=new_call_id(),
                trace_id=new_trace_id(),
                caller=SEAT.get().caller.id,
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
        await entry
    return result


def _view(context: Any) -> View:
    return shown_by(context.request.scope)


def _check_prompt(name: str, view: View) -> None:
    if not view.admits(name):
        raise unknown_prompt(name)


def _plain(params: BaseModel) -> JsonObject:
    return params.model_dump(by_alias=True, mode="json", exclude_none=True)


def told(relay: Relay, handler: Handler) -> Handler:
    """Pass a server's own protocol error on as it was; one of ours says its code in `data`."""

    @wraps(handler)
    async def answer(context: Any, params: Any) -> JsonObject:
        if not relay.sources:
            # A server that is added later brings these methods along.
            raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
        try:
            # What an older server does not say; the SDK leaves out what an older client does not know.
            result = await handler(context, params)
        except ServerRefused as refusal:
            raise MCPError(refusal.code, refusal.message, refusal.data) from refusal
        except ToolpostError as error:
            raise MCPError(INTERNAL_ERROR, error.message, error.as_object()) from error
        return result if result.get("resultType") == "input_required" else _COMPLETE | result

    return answer
