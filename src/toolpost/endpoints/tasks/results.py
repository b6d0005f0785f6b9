"""Outcomes of tasks: a result, or the JSON-RPC error that says why there is none."""

from typing import Final

import msgspec

from toolpost.base.ids import JsonObject
from toolpost.contracts.contract import Contract
from toolpost.contracts.errors import ErrorCode
from toolpost.endpoints.tasks.records import TaskOutcome
from toolpost.gateway import Answer
from toolpost.protocol.rpc import INTERNAL_ERROR

CANCELLED: Final = TaskOutcome(status="cancelled", message="The client cancelled the task.")


def may_be_repeated(contract: Contract) -> bool:
    """Whether a tool may be run twice, by its annotations `readOnlyHint` and `idempotentHint`."""
    annotations = contract.definition.get("annotations") or {}
    return isinstance(annotations, dict) and (
        annotations.get("readOnlyHint") is True or annotations.get("idempotentHint") is True
    )


def refusal_of(answer: Answer) -> TaskOutcome | None:
    """Return the outcome of a call that was refused with a JSON-RPC error; None if it has a result, even one with `isError`."""
    if (refusal := answer.refusal) is not None:
        data = {} if refusal.data is None else {"data": refusal.data}
        return make_failure(refusal.message, code=refusal.rpc_code, **data)
    return None


def make_interruption(tool: str, how: str) -> TaskOutcome:
    """Return the outcome of a call that was interrupted and may have had an effect."""
    return make_failure(
        f"The gateway {how} while `{tool}` ran, which may have had an effect: it is not run again.",
        data={
            "code": ErrorCode.INTERNAL.value,
            "hint": "check what it has done, then call it again; a tool with `idempotentHint` or `readOnlyHint` is run again"
            " automatically",
        },
    )


def make_failure(message: str, *, code: int = INTERNAL_ERROR, **more: object) -> TaskOutcome:
    error: JsonObject = {"code": code, "message": message, **more}
    return TaskOutcome(status="failed", message=message, error=encode_text(error))


def encode_text(value: object) -> str:
    """Encode a value as the JSON text that the store keeps."""
    return msgspec.json.encode(value).decode()
