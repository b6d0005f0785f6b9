"""Schema-validate: arguments and results that break the contract are turned away."""

from collections.abc import Sequence

import msgspec

from toolpost.contracts.contract import Contract
from toolpost.contracts.errors import InvalidArguments, InvalidResult
from toolpost.contracts.faults import Fault
from toolpost.contracts.ids import Json, JsonObject
from toolpost.pipeline.call import Call


def validate_arguments(call: Call) -> None:
    """Turn away arguments that break the contract."""
    contract = call.tool.contract
    if call.context.sent is not None:
        return  # asked ahead, and looked at before that
    if faults := contract.faults_in_arguments(call.arguments):
        # The schema goes back with the refusal, so that a model can mend its own call.
        raise InvalidArguments(
            _told("The arguments break the schema", contract, faults),
            hint="mend the issues and call again",
            issues=_listed(faults),
            inputSchema=contract.takes.raw,
        )


def check_result(contract: Contract, result: object, *, content: Sequence[Json] = ()) -> None:
    """Turn away a result that breaks the contract; what the tool gave is still there to read."""
    if faults := contract.faults_in_result(result):
        raise InvalidResult(
            _told("The result breaks the output schema", contract, faults),
            hint="the tool is at fault, not the call; its result is under details.result",
            issues=_listed(faults),
            result=_bounded(result),
            content=content,
        )


RESULT_LIMIT_BYTES = 20_000


def _told(what: str, contract: Contract, faults: list[Fault]) -> str:
    return f"{what} of `{contract.name}`: " + "; ".join(fault.message for fault in faults[:3])


def _listed(faults: list[Fault]) -> list[JsonObject]:
    return [fault.as_object() for fault in faults]


def _bounded(result: object) -> object:
    encoded = msgspec.json.encode(result)
    return result if len(encoded) <= RESULT_LIMIT_BYTES else encoded[:RESULT_LIMIT_BYTES].decode(errors="ignore") + "…"
