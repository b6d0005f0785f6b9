"""Extensions of the servers behind the gateway, as middleware of the SDK's server.

It adds what servers declare to what the gateway announces, with their instructions, and sends requests and notifications that no
revision of MCP knows to the server that they are for.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError

from toolpost.base.caller import UNLIMITED, Caller, Scope, owner_of
from toolpost.base.events import event
from toolpost.base.ids import META_KEY, CallerId, JsonObject
from toolpost.contracts.errors import NotReadOnly, ToolpostError
from toolpost.discovery.views import SEPARATOR, View, tags_of
from toolpost.endpoints.http.paths import read_view
from toolpost.endpoints.instructions import merge_instructions
from toolpost.endpoints.sdk.passthrough import merge_envelope
from toolpost.endpoints.sdk.relay import RelayHandlers, is_stateless, wrap_handler
from toolpost.endpoints.sdk.request_context import VIEWER
from toolpost.protocol.era import SERVER_INFO
from toolpost.protocol.extensions import is_extension_notification, is_extension_request
from toolpost.protocol.rpc import INVALID_PARAMS
from toolpost.providers.extensions import Extensions
from toolpost.providers.relay import Relay, RelayProvider
from toolpost.providers.requester import Requester
from toolpost.shares import Shares
from toolpost.upstreams.notifications import ExtensionBudget
from toolpost.upstreams.transport import ServerRefused

_log = logging.getLogger("toolpost.endpoints")

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
        mode: Scope = UNLIMITED,
        instructions_limit: int = 0,
        stamp: Callable[[], JsonObject],
    ) -> None:
        """`mode` limits the whole gateway; `stamp` returns the gateway's own info, for results of the stateless era."""
        self._relay = relay
        self._handlers = handlers
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
            if not ctx.session._connection.initialize_accepted:  # noqa: SLF001 (the SDK's own rule for its handlers)
                raise MCPError(INVALID_PARAMS, "Invalid request parameters", "")
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
            server = await self._extensions_of(caller, view).notify(method, params, requester)
            if server is None:
                raise ServerRefused(INVALID_PARAMS, "the server does not run")
        except (ServerRefused, ToolpostError) as error:
            event(_log, logging.INFO, "notification not forwarded", method=method, reason=error.message)

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
        extensions = self._extensions_of(VIEWER.get().caller, _view_of(context))
        result = await self._handlers.call_extension(context, extensions)
        shaped: JsonObject = {"resultType": "complete", "_meta": {SERVER_INFO: self._stamp()}}
        return merge_envelope(result, shaped, is_stateless=is_stateless(context))

    def _extensions_of(self, caller: Caller, view: View, *, is_announced: bool = False) -> Extensions:
        """Return the extensions of the servers of which the caller sees everything: methods have no name to match."""
        if not is_announced and (self._mode.is_read_only or any(scope.is_read_only for scope in view.scopes)):
            raise NotReadOnly("Extensions may have effects, and only read-only tools may be called here.")

        def shows(name: str, provider: RelayProvider) -> bool:
            tags = tags_of(provider)
            is_admitted = self._mode.carries(tags) and self._mode.admits(f"{name}{SEPARATOR}")
            return is_admitted and view.shows_whole(name, tags)

        return Extensions(self._relay, owner_of(caller), shows)


def _view_of(context: Any) -> View:
    return read_view(context.request.scope)
