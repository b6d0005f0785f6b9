"""Dispatch: the tool runs, and whatever it does becomes an outcome or an error of ours."""

import logging

import msgspec

from toolpost.contracts.errors import ToolFailed, ToolpostError
from toolpost.contracts.events import event
from toolpost.contracts.ids import Json
from toolpost.pipeline.call import Call
from toolpost.pipeline.stage import Outcome
from toolpost.pipeline.validate import check_result

_log = logging.getLogger("toolpost.dispatch")
_encode = msgspec.json.Encoder().encode


async def dispatch(call: Call) -> Outcome:
    """Run the tool, check what it returned, encode it once."""
    # A call that was cancelled while it waited must not run: a tool without an await would not notice.
    call.raise_if_ended()
    try:
        returned = await call.tool.invoke(call.arguments, call.context)
    except ToolpostError as error:
        _log_failure(call, error)
        raise
    except Exception as error:
        failure = ToolFailed(str(error) or type(error).__name__, exception=type(error).__name__)
        _log_failure(call, failure, cause=error)
        raise failure from error
    encoded = _encoded(returned.value)
    check_result(call.tool.contract, returned.value)
    return Outcome(encoded, returned.content)


def _encoded(value: Json) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError) as error:
        raise ToolFailed(f"The tool returned something that is not JSON: {error}") from error


def _log_failure(call: Call, error: ToolpostError, *, cause: BaseException | None = None) -> None:
    event(
        _log,
        logging.WARNING,
        "tool failed",
        tool=call.tool.contract.name,
        plugin=call.tool.source,
        code=error.code.value,
        message=error.message,
        call=call.id,
        trace=call.trace_id,
        caller=call.caller.id,
        exception=cause or error,
    )
