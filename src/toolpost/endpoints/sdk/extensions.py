"""Extensions of the servers behind the gateway, as middleware of the SDK's server.

It adds the declarations of servers to those of the gateway, with their instructions, and sends requests and notifications that no
revision of MCP knows to the server that they are for.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from toolpost.authoring.middleware import CallRequest
from toolpost.base.caller import UNLIMITED, Caller, Scope, owner_of
from toolpost.base.ids import META_KEY, CallerId, JsonObject, PluginName, make_full_name, new_call_id, new_trace_id
from toolpost.contracts.errors import NotReadOnly, ToolpostError
from toolpost.discovery.views import SEPARATOR, View, tags_of
from toolpost.endpoints.http.paths import read_view
from toolpost.endpoints.instructions import merge_instructions
from toolpost.endpoints.sdk.handshake import require_initialized
from toolpost.endpoints.sdk.passthrough import merge_envelope
from toolpost.endpoints.sdk.relay import RelayHandlers, is_stateless, wrap_handler
from toolpost.endpoints.sdk.request_context import VIEWER
from toolpost.fairness import Shares
from toolpost.middleware.extensions import ExtensionSteps, describe_method
from toolpost.protocol.era import SERVER_INFO
from toolpost.protocol.extensions import is_extension_notification, is_extension_request
from toolpost.protocol.rpc import INVALID_PARAMS, METHOD_NOT_FOUND
from toolpost.providers.extensions import Extensions, find_named_tool
from toolpost.providers.relay import Relay, RelayProvider
from toolpost.providers.requester import Requester
from toolpost.providers.server_provider import ServerProvider
from toolpost.providers.unknown_name import UnknownName
from toolpost.upstreams.notifications import ExtensionBudget
from toolpost.upstreams.transport import ServerRefused

_ANNOUNCING: Final = frozenset({"initialize", "server/discover"})
_BUDGETS: Final = 1_000
"""Of how many callers it is counted how many notifications they send."""


class ExtensionMiddleware:
    """Middleware of the SDK's server, for requests and notifications alike."""

    def __init__(
        self,
        relay: Relay,
        handlers: RelayHandlers,
        calls: Shares,
        *,
        steps: ExtensionSteps,
        mode: Scope = UNLIMITED,
        instructions_limit: int = 0,
        stamp: Callable[[], JsonObject],
    ) -> None:
        """`steps` are the middleware and guards, `mode` limits the whole gateway; `stamp` returns the gateway's own info, for
        results of the stateless era.
        """
        self._relay = relay
        self._handlers = handlers
        self._steps = steps
        self._mode = mode
        self._instructions_limit = instructions_limit
        self._stamp = stamp
        self._budgets: OrderedDict[CallerId, ExtensionBudget] = OrderedDict()
        self._call = wrap_handler(relay, calls, self._call_extension)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Handle what is an extension's, and pass everything else on."""
        if ctx.method in _ANNOUNCING:
            return self._announce(await call_next(ctx))
        if ctx.request_id is None:
            if is_extension_notification(ctx.method):
                await self.notify(ctx.method, dict(ctx.params or {}), VIEWER.get().caller, _view_of(ctx))
                return None
        elif is_extension_request(ctx.method):
            require_initialized(ctx)
            return await self._call(ctx, None)
        return await call_next(ctx)

    async def notify(self, method: str, params: JsonObject, caller: Caller, view: View) -> None:
        """Pass a client's notification on; one that cannot be is logged, since a notification has no answer."""
        try:
            budget = self._budgets.setdefault(caller.id, ExtensionBudget())
            self._budgets.move_to_end(caller.id)
            if len(self._budgets) > _BUDGETS:
                self._budgets.popitem(last=False)
            if not budget.take():
                raise ServerRefused(INVALID_PARAMS, "the client sends too many")
            meta = params.pop("_meta", None)
            requester = Requester(caller=caller, meta=meta if isinstance(meta, dict) else {})
            extensions = self._extensions_of(caller, view)

            async def send(server: ServerProvider, params: JsonObject) -> JsonObject:
                if not await extensions.notify(server, method, params, requester):
                    raise ServerRefused(INVALID_PARAMS, "the server does not run")
                return {}

            await self._pass_steps(extensions, method, params, requester, view, send)
        except UnknownName as unknown:
            self._relay.refusals.note_unknown(unknown.kind, unknown.name, caller)
        except (ServerRefused, ToolpostError) as error:
            self._relay.refusals.note(caller, method=method, reason=error.message[:200])

    def _announce(self, result: HandlerResult) -> HandlerResult:
        if not isinstance(result, dict) or (viewer := VIEWER.get(None)) is None:
            return result
        extensions = self._extensions_of(viewer.caller, viewer.view, is_announced=True)
        if (instructions := extensions.instructions) and self._instructions_limit:
            own, limit, is_bare = str(result.get("instructions") or ""), self._instructions_limit, viewer.view.is_bare
            result = result | {"instructions": merge_instructions(own, instructions, limit, is_bare=is_bare)}
        if not (merged := extensions.merged):
            return result
        capabilities = dict(result.get("capabilities") or {})
        for kind, declared in merged.items():
            # What the gateway serves itself comes first.
            capabilities[kind] = declared | (capabilities.get(kind) or {})
        meta = dict(result.get("_meta") or {})
        meta[META_KEY] = {"extensions": extensions.servers}
        return result | {"capabilities": capabilities, "_meta": meta}

    async def _call_extension(self, context: Any, _params: Any) -> JsonObject:
        method, view = context.method, _view_of(context)

        async def call(params: JsonObject, requester: Requester) -> tuple[str, JsonObject]:
            extensions = self._extensions_of(requester.caller, view)

            def send(server: ServerProvider, params: JsonObject) -> Awaitable[JsonObject]:
                return extensions.call(server, method, params, requester)

            return await self._pass_steps(extensions, method, params, requester, view, send)

        result = await self._handlers.call_extension(context, call)
        shaped: JsonObject = {"resultType": "complete", "_meta": {SERVER_INFO: self._stamp()}}
        return merge_envelope(result, shaped, is_stateless=is_stateless(context))

    async def _pass_steps(
        self,
        extensions: Extensions,
        method: str,
        params: JsonObject,
        requester: Requester,
        view: View,
        send: Callable[[ServerProvider, JsonObject], Awaitable[JsonObject]],
    ) -> tuple[str, JsonObject]:
        """Choose the server of a method and run middleware and guards around `send`; return the server's name and result."""
        server = await extensions.choose(method, params, requester)
        if requester.operation is not None:
            requester.operation.enter(server.name, limit_s=server.timeout_s)
        # One pattern is for the requests and the notifications of an extension: `server__vendor/*`.
        name = make_full_name(server.name, method.removeprefix("notifications/"))
        request = CallRequest(
            id=requester.call_id or new_call_id(),
            trace_id=new_trace_id(),
            caller=requester.caller,
            tool=name,
            provider=PluginName(server.name),
            arguments=params,
            meta=requester.meta,
        )

        def check_and_send(params: JsonObject) -> Awaitable[JsonObject]:
            # On what middleware hands on. A tool that the parameters name may be what the method runs: it must not be a way
            # around what limits that tool.
            tools = [describe_method(server.name, name)]
            if (named := find_named_tool(server, params)) is not None:
                tools.append(named.info)
            if not all(limit.admits(tool.name, *tool.aliases) for tool in tools for limit in (self._mode, view)):
                raise ServerRefused(METHOD_NOT_FOUND, "Method not found", method)
            self._steps.check(tools)
            return send(server, params)

        return server.name, await self._steps.run(request, check_and_send)

    def _extensions_of(self, caller: Caller, view: View, *, is_announced: bool = False) -> Extensions:
        """Return the extensions of the servers of which the caller sees everything: methods have no name to match."""
        if not is_announced and (self._mode.is_read_only or any(scope.is_read_only for scope in view.scopes)):
            raise NotReadOnly(
                "A method of an extension may have effects, and only read-only tools may be called in the mode `readonly`.",
                hint="call a tool that is marked as read-only; an operator can change `modes.mode` or the caller's `mode`",
            )

        def shows(name: str, provider: RelayProvider) -> bool:
            tags = tags_of(provider)
            is_admitted = self._mode.carries(tags) and self._mode.admits(f"{name}{SEPARATOR}")
            return is_admitted and view.shows_whole(name, tags)

        return Extensions(self._relay, owner_of(caller), shows)


def _view_of(context: Any) -> View:
    return read_view(context.request.scope)
