"""Quarantined tools: a tool that changed against its lock or pin is not run, and answers every call with what changed."""

from dataclasses import replace
from typing import Final

from toolpost.authoring.context import Context
from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.contract import Contract
from toolpost.contracts.errors import ContractChanged, NotReadOnly
from toolpost.contracts.schema import compile_schema
from toolpost.providers.promises import SHOWN_RULES, ContractStatus, Promises
from toolpost.providers.tool import ProvidedTool, ToolReturn

JUDGE_WAIT_S: Final = 2.0
"""How long a call waits for the judgement on the change."""

_ANYTHING: Final = compile_schema({"type": "object"}, root_object=True)


def quarantine(tool: ProvidedTool, status: ContractStatus, promises: Promises | None = None) -> ProvidedTool:
    """Make the quarantined form of a tool. It does not validate arguments: they may be meant for either schema.

    A pending judgement is made by `promises`.
    """

    async def refuse(_arguments: JsonObject, _context: Context) -> ToolReturn:
        now: ContractStatus | None = status
        if status.judgement is None and promises is not None:
            await promises.settle(JUDGE_WAIT_S)
            now = await promises.check(tool.provider, tool.contract)
        raise _make_error(tool.contract, now or status)

    return replace(
        tool,
        contract=replace(tool.contract, arguments_schema=_ANYTHING, result_schema=None),
        invoke=refuse,
        early_request=None,
    )


def forbid(tool: ProvidedTool) -> ProvidedTool:
    """Make the form of a tool that is not annotated read-only, where only such tools may be called."""

    async def refuse(_arguments: JsonObject, _context: Context) -> ToolReturn:
        raise NotReadOnly(
            f"`{tool.contract.name}` is not marked as read-only, and only such tools may be called in the mode `readonly`.",
            hint="an operator can change `modes.mode`, the caller's `mode`, or name a server in `modes.confirmed`",
        )

    return replace(tool, invoke=refuse, early_request=None)


def _make_error(contract: Contract, status: ContractStatus) -> ContractChanged:
    since = f"it was {status.since}"
    judgement = status.judgement
    if judgement is None or status.is_harmless:
        return ContractChanged(
            f"`{contract.name}` has changed since {since}; the change is being checked.", hint="try again in a moment"
        )
    return ContractChanged(
        f"`{contract.name}` is no longer what it was when {since}, and is quarantined.",
        hint=f"the operator of this gateway can see why with `toolpost diff`, and accept the change with"
        f" `toolpost lock --accept {contract.name}`",
        tool=contract.name,
        promise=status.promise,
        verdict=judgement.verdict.value,
        changes=[
            {"rule": change.rule, "verdict": change.verdict.value, "place": _mask_place(change.place, status)}
            for change in judgement.changes[:SHOWN_RULES]
        ],
        suspicions=[
            {"kind": found.kind.value, "place": _mask_place(found.place, status)}
            for found in status.findings[:SHOWN_RULES]
        ],
    )


def _mask_place(place: str, status: ContractStatus) -> str:
    """Cut a JSON pointer at the first name that the promised definition does not have: a new name may be meant for the model."""
    value: Json = status.promised.to_listed()
    steps = [step.replace("~1", "/").replace("~0", "~") for step in place.split("/")[1:]]
    for number, step in enumerate(steps):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (IndexError, KeyError, TypeError, ValueError):
            return "".join(f"/{step}" for step in place.split("/")[1 : number + 1]) + "/…"
    return place
