"""Tools compared with their lock or pin: a changed tool is quarantined, and answers every call with the change."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import anyio

from toolpost.authoring.context import Context
from toolpost.base import Json, JsonObject, PluginName, ToolName, event
from toolpost.contracts import Contract, Definition, compile_schema
from toolpost.contracts.errors import ContractChanged
from toolpost.contracts.findings import DefinitionScan, Finding
from toolpost.providers.contract_watch import SHOWN_RULES, ContractStatus, ContractWatch, Mode
from toolpost.providers.findings import SHOWN_REASONS
from toolpost.providers.functions import FunctionProvider
from toolpost.providers.tool import ProvidedTool, RawResult
from toolpost.upstreams.lists import Slices, are_same

_log = logging.getLogger("toolpost.providers")

JUDGE_WAIT_S: Final = 2.0
"""How long a call waits for the judgement on the change."""

_ANYTHING: Final = compile_schema({"type": "object"}, root_object=True)


@dataclass(frozen=True)
class SortedTools:
    """The tools of a provider, by how they compare with their lock or pin."""

    served: dict[ToolName, ProvidedTool] = field(default_factory=dict)
    quarantined: dict[ToolName, ProvidedTool] = field(default_factory=dict)
    statuses: dict[ToolName, ContractStatus] = field(default_factory=dict)
    """The tools that differ, quarantined or not."""
    left_out: frozenset[ToolName] = frozenset()
    """Tools with new names, of a server that renames its tools too often: neither listed nor quarantined."""

    async def is_like(self, other: "SortedTools") -> bool:
        """Whether clients would be listed the same tools, and operators told the same of them."""
        return (
            self.served.keys() == other.served.keys()
            and self.statuses.keys() == other.statuses.keys()
            and await are_same([*self.statuses.values()], [other.statuses[name] for name in self.statuses])
        )


async def sort_tools(
    tools: Mapping[ToolName, ProvidedTool], watch: ContractWatch, pin_name: PluginName, mode: Mode
) -> SortedTools:
    """Compare tools with their lock or pin; with `enforce`, a tool whose change is not harmless is quarantined."""
    contracts = {name: tool.contract for name, tool in tools.items()}
    checked = await watch.check_all(pin_name, contracts)
    found, slices = SortedTools(statuses=checked.statuses, left_out=checked.left_out), Slices()
    for name, tool in tools.items():
        status = checked.statuses.get(name)
        if status is not None and mode == "enforce" and not status.is_harmless:
            found.quarantined[name] = _quarantine(tool, status, watch, pin_name)
        elif name not in checked.left_out:
            found.served[name] = tool
        await slices.give_way()
    return found


@dataclass(frozen=True, kw_only=True)
class CheckedText:
    """A text of a server that models read unasked, compared with its lock or pin."""

    is_quarantined: bool = False
    status: ContractStatus | None = None
    """How it differs from its lock or pin; None if it does not."""
    findings: Sequence[Finding] = ()


async def check_text(
    definition: Definition, scan: DefinitionScan, watch: ContractWatch, pin_name: PluginName, mode: Mode
) -> CheckedText:
    """Compare instructions or a skill with its lock or pin.

    They go to models unasked. So those that may be an injection are quarantined until a person has locked them, whatever
    happens to tools; other changes are, as those of tools, with `enforce`.
    """
    status = await watch.check_definition(pin_name, definition)
    findings = (await watch.names()).inspect(scan)
    is_suspicious = bool(findings) and not watch.is_locked(definition)
    is_quarantined = is_suspicious or (status is not None and mode == "enforce")
    return CheckedText(is_quarantined=is_quarantined, status=status, findings=findings)


def log_quarantined(kind: str, server: PluginName, definition: Definition, findings: Sequence[Finding]) -> None:
    """Log which text of a server may be an injection, and how it is accepted."""
    reasons = [finding.summary for finding in findings[:SHOWN_REASONS]]
    hint = f"accept it: toolpost lock --accept {definition.name}"
    event(_log, logging.WARNING, f"{kind} quarantined", server=server, reasons=reasons, hint=hint)


class PinnedPlugin:
    """The tools of a plugin whose definitions are written by others, as an API's document is: held to their lock or pin.

    There are none before the first `recheck`: nothing can be called before it is known what changed.
    """

    def __init__(
        self, provider: FunctionProvider, watch: ContractWatch, mode: Mode, on_change: Callable[[], None]
    ) -> None:
        """`on_change` is called when other tools are listed, or differ in another way, than at the check before."""
        self.name = provider.name
        self.description = provider.description
        self.refused = provider.refused
        self.contracts = [tool.contract for tool in provider.tools.values()]
        self._provider = provider
        self._watch = watch
        self._mode: Mode = mode
        self._on_change = on_change
        self._sorted = SortedTools()
        self._is_checked = False
        self._checking = anyio.Lock()

    @property
    def tools(self) -> Mapping[ToolName, ProvidedTool]:
        return self._sorted.served

    @property
    def quarantined(self) -> Mapping[ToolName, ProvidedTool]:
        return self._sorted.quarantined

    @property
    def statuses(self) -> Mapping[ToolName, ContractStatus]:
        """The tools that differ from their lock or pin."""
        return self._sorted.statuses

    @property
    def pin_name(self) -> PluginName:
        """Under which its tools are pinned."""
        return self.name

    @property
    def degraded(self) -> str | None:
        """Why some of its tools are left out; None if none are."""
        return self._watch.find_problem(self.name) if self._sorted.left_out else None

    def is_quarantined(self, name: ToolName) -> bool:
        return name in self._sorted.quarantined

    def define(self, name: ToolName) -> Definition:
        """Return the definition of a tool as it is now; raise `KeyError` if there is none."""
        return Definition.from_contract(self._provider.tools[name].contract)

    async def recheck(self) -> None:
        """Compare all tools with their lock or pin, again after a judgement or a change of the lock."""
        # One at a time: the result of a check that began before a change of the lock must not be the last.
        async with self._checking:
            before = self._sorted
            self._sorted = await sort_tools(self._provider.tools, self._watch, self.name, self._mode)
            if self._is_checked and not await self._sorted.is_like(before):
                self._on_change()
            self._is_checked = True


def _quarantine(tool: ProvidedTool, status: ContractStatus, watch: ContractWatch, pin_name: PluginName) -> ProvidedTool:
    """Make the quarantined form of a tool. It does not validate arguments: they may be meant for either schema."""

    async def refuse(_arguments: JsonObject, _context: Context) -> RawResult:
        now: ContractStatus | None = status
        if status.judgement is None:
            await watch.settle(JUDGE_WAIT_S)
            now = await watch.check(pin_name, tool.contract)
        raise _make_error(tool.contract, now or status)

    contract = replace(tool.contract, arguments_schema=_ANYTHING, result_schema=None)
    # A function's definition is made of its schemas; locks and the audit are to name the one that it has.
    vars(contract)["definition"] = tool.contract.definition
    return replace(
        tool,
        contract=contract,
        invoke=refuse,
        is_refused=True,
        fast_request=None,
    )


def _make_error(contract: Contract, status: ContractStatus) -> ContractChanged:
    since = f"it was {status.since}"
    judgement = status.judgement
    if judgement is None or status.is_harmless:
        return ContractChanged(
            f"`{contract.name}` has changed since {since}; the change is being checked.", hint="try again in a moment"
        )
    return ContractChanged(
        f"`{contract.name}` differs from its definition when {since}, and is quarantined.",
        hint=f"the operator of this gateway can see why with `toolpost diff`, and accept the change with"
        f" `toolpost lock --accept {contract.name}`",
        tool=contract.name,
        promise=status.promise,
        verdict=judgement.verdict.value,
        changes=[
            {"rule": change.rule, "verdict": change.verdict.value, "place": _mask_place(change.place, status)}
            for change in judgement.changes[:SHOWN_RULES]
        ],
        findings=[
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
