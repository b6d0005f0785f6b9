"""A tool that is not what it promised, held back: it answers every call with what changed."""

from dataclasses import replace
from typing import Final

from toolpost.authoring.context import Context
from toolpost.contracts.contract import Contract
from toolpost.contracts.errors import ContractChanged
from toolpost.contracts.ids import JsonObject
from toolpost.contracts.schema import compile_schema
from toolpost.sources.held import HeldTool, ToolReturn
from toolpost.sources.promises import Standing, told_to_callers

_ANYTHING: Final = compile_schema({"type": "object"}, root_object=True)


def withheld(tool: HeldTool, standing: Standing) -> HeldTool:
    """Hold a tool back; its arguments are not looked at, since nobody knows which schema they were made for."""

    async def refuse(_arguments: JsonObject, _context: Context) -> ToolReturn:
        raise _refusal(tool.contract, standing)

    return replace(tool, contract=replace(tool.contract, takes=_ANYTHING, gives=None), invoke=refuse)


def _refusal(contract: Contract, standing: Standing) -> ContractChanged:
    since = "it was locked" if standing.promise == "lock" else "it was first seen"
    if standing.judgement is None:
        return ContractChanged(
            f"`{contract.name}` has changed since {since}; how is being looked at.", hint="try again in a moment"
        )
    return ContractChanged(
        f"`{contract.name}` is no longer what it was when {since}, and is withheld.",
        hint=f"whoever runs this server sees why with `toolpost diff`, and takes it over with"
        f" `toolpost lock --accept {contract.name}`",
        tool=contract.name,
        promise=standing.promise,
        **told_to_callers(standing.judgement),
    )
