"""One cancel scope for every way a call may be stopped: its deadline, its caller, the server's end."""

import asyncio

from toolpost.middleware.call import Call
from toolpost.middleware.interface import NextStep, Outcome


async def within_limits(call: Call, proceed: NextStep) -> Outcome:
    """Run the rest under the call's scope, and say why if it was stopped."""
    call.raise_if_ended()
    was_asked = False
    with call.scope:
        try:
            outcome = await proceed(call)
        except asyncio.CancelledError:
            # A person who takes their time is not the server's fault.
            was_asked = call.waits_for_client
            raise
        if not call.scope.cancel_called:
            return outcome
        # The tool swallowed the cancellation and answered all the same: too late, it has been called off.
    # Nor is it the server's fault if a middleware hangs.
    if not call.is_cancelled and not was_asked and call.held_by is None:
        call.blame(f"`{call.tool.contract.terms.name}` did not answer within {call.tool.contract.timeout_s:g} s")
    call.raise_if_ended()
    raise AssertionError("a scope ended without a reason")
