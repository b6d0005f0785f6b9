"""The steps of a request or notification of an extension on its way to a server: user middleware, then guards.

MCP does not know its method, so it has no contract, and nothing says whether it has effects. Middleware and guards see it as the
call of a tool `SERVER__METHOD` without annotations. A guard cannot hold such a call: what it grants is bound to a contract. So a
method that a guard may apply to is refused.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final

from toolpost.authoring.middleware import CallRequest, CallResult, NamedMiddleware, Next, ToolInfo, may_apply
from toolpost.base import JsonObject, PluginName, ToolName, event
from toolpost.contracts.errors import Forbidden, GatewayError, ToolpostError
from toolpost.middleware.interface import Guard
from toolpost.upstreams.transport import ServerRefused

_log = logging.getLogger("toolpost.middleware")

Send = Callable[[JsonObject], Awaitable[JsonObject]]


class ExtensionSteps:
    """The middleware and the guards of one gateway, for methods that have no contract."""

    def __init__(self, middleware: Sequence[NamedMiddleware] = (), guards: Sequence[Guard] = ()) -> None:
        """`middleware` has the outermost first."""
        self._middleware = tuple(middleware)
        self._guards = [guard for guard in guards if not getattr(guard, "ignores_extensions", False)]

    async def run(self, request: CallRequest, send: Send) -> JsonObject:
        """Run middleware around `send`, which is given the arguments that they hand on."""
        info = describe_method(request.provider, request.tool)

        async def proceed(request: CallRequest) -> CallResult:
            return CallResult(data=await send(request.arguments))

        chain: Next = proceed
        for middleware in reversed(self._middleware):
            applies = getattr(middleware.function, "applies_to_call", None)
            if middleware.may_apply(info) and (applies is None or applies(request.caller, request.tool, request.meta)):
                chain = partial(_enter, middleware, proceed=chain)
        result = await chain(request)
        if not isinstance(result.data, dict):
            raise GatewayError(f"A middleware's result for `{request.tool}` is {type(result.data).__name__}, no object")
        return result.data

    def check(self, tools: Iterable[ToolInfo]) -> None:
        """Raise `Forbidden` if a guard may apply to one of these, which are the method and the tool that it names."""
        for tool in tools:
            for guard in self._guards:
                if may_apply(guard.may_apply, tool, name=guard.name):
                    raise Forbidden(
                        f"`{tool.name}` needs a decision of {guard.name}, which an extension's method cannot get: only calls"
                        " of tools can.",
                        hint=f"call a tool of the server; an operator can exclude the method from the rule: `!{tool.name}`",
                        guard=guard.name,
                    )


NO_STEPS: Final = ExtensionSteps()


def describe_method(server: PluginName, name: ToolName) -> ToolInfo:
    """Describe a method as a tool of its server; it has no annotations, so that MCP's defaults hold for it."""
    return ToolInfo(name=name, provider=server, is_upstream=True, servers=[server])


async def _enter(middleware: NamedMiddleware, request: CallRequest, proceed: Next) -> CallResult:
    try:
        result = await middleware.function(request, proceed)
    except (ToolpostError, ServerRefused):
        raise
    except Exception as error:
        event(_log, logging.ERROR, "middleware failed", middleware=middleware.name, tool=request.tool, exception=error)
        # What went wrong is for the log alone: the text of an exception may hold anything.
        raise GatewayError from error
    if not isinstance(result, CallResult):
        raise GatewayError(f"The middleware `{middleware.name}` returned {type(result).__name__}, not a CallResult")
    return result
