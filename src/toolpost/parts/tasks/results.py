"""What becomes of a deferred call, in words: its answer, or why it has none."""

from typing import Final

import msgspec

from toolpost.base.ids import JsonObject
from toolpost.contracts.contract import Contract
from toolpost.contracts.errors import ErrorCode
from toolpost.gateway import Answer
from toolpost.parts.tasks.records import Ending
from toolpost.protocol.rpc import INTERNAL_ERROR

CALLED_OFF: Final = Ending(status="cancelled", message="The client called it off.")


def may_be_repeated(contract: Contract) -> bool:
    """Whether running a tool twice is running it once, by what is said of it."""
    said = contract.definition.get("annotations") or {}
    return isinstance(said, dict) and (said.get("readOnlyHint") is True or said.get("idempotentHint") is True)


def refusal_of(answer: Answer) -> Ending | None:
    """Say how a call failed as a request; None if it has a result, which may itself be a failure."""
    if (refusal := answer.refusal) is not None:
        data = {} if refusal.data is None else {"data": refusal.data}
        return failed(refusal.message, code=refusal.rpc_code, **data)
    return None


def interrupted(tool: str, how: str) -> Ending:
    """Say that a call was cut off and may have had an effect."""
    return failed(
        f"The gateway {how} while `{tool}` ran, which may have had an effect: it is not run again.",
        data={
            "code": ErrorCode.INTERNAL.value,
            "hint": "look at what it has done, then call it again; a tool that says `idempotentHint` or `readOnlyHint` is"
            " run again by itself",
        },
    )


def failed(message: str, *, code: int = INTERNAL_ERROR, **more: object) -> Ending:
    """Make a JSON-RPC error of it."""
    error: JsonObject = {"code": code, "message": message, **more}
    return Ending(status="failed", message=message, error=as_text(error))


def as_text(value: object) -> str:
    """Write JSON as the store keeps it."""
    return msgspec.json.encode(value).decode()
