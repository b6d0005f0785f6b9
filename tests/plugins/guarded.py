"""A plugin that brings middleware, for servers in processes of their own; and middleware that a setting names."""

from toolpost import CallRequest, CallResult, Forbidden, Next, Plugin


async def shout(call: CallRequest, proceed: Next) -> CallResult:
    """Change arguments; `forbidden` is refused."""
    if call.arguments.get("text") == "forbidden":
        raise Forbidden("Nobody says that here.")
    if "text" in call.arguments:
        call = call.with_arguments(call.arguments | {"text": str(call.arguments["text"]).upper()})
    return await proceed(call)


async def exclaim(call: CallRequest, proceed: Next) -> CallResult:
    """Stand inside or outside `shout`: what it adds is only raised in the latter case."""
    return await proceed(call.with_arguments(call.arguments | {"text": f"{call.arguments['text']}, hey"}))


def sync(call: CallRequest, proceed: Next) -> None:
    """Be no middleware, since it is not asynchronous."""


async def alone() -> None:
    """Be no middleware, since it takes nothing."""


plugin = Plugin("guarded", middleware=[shout])
