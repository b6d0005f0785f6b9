"""Looks at what servers tell about their tools for what may be meant for the model, in a thread, once for each definition."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from toolpost.base.events import event
from toolpost.base.ids import Digest, PluginName, ToolName
from toolpost.contracts.compatibility import Definition
from toolpost.contracts.contract import Contract
from toolpost.contracts.findings import DefinitionScan, Finding, NameIndex, scan_definition
from toolpost.upstreams.lists import Slices

_log = logging.getLogger("toolpost.contracts")

SHOWN_REASONS: Final = 5

SETTLE_S: Final = 0.5
"""How long it waits before it looks: a command that is over in a moment need not, and many changes are looked at together."""

Contracts = Mapping[PluginName, Sequence[Contract]]
Findings = dict[ToolName, Sequence[Finding]]


class Watch:
    """What is suspected of the tools of all servers. `run` must be running."""

    def __init__(self, contracts: Callable[[], Contracts], *, beside: Iterable[str] = ()) -> None:
        """Look at these contracts; `beside` are the names of tools that are known and not looked at."""
        self._contracts = contracts
        self._beside = frozenset(beside)
        self._looks: dict[ToolName, tuple[Digest, DefinitionScan]] = {}
        self._found: dict[PluginName, Findings] = {}
        self._asked = anyio.Event()
        self._names: NameIndex | None = None
        self._changes = 0

    def of(self, server: PluginName) -> Findings:
        """Return what is suspected of a server's tools, as far as they have been looked at."""
        return self._found.get(server, {})

    async def find_names(self) -> NameIndex:
        """Return the names of all tools that there are; after a change they are read in a thread, for there may be thousands."""
        if self._names is not None:
            return self._names
        changes = self._changes
        names = await anyio.to_thread.run_sync(self._all_names, self._contracts(), abandon_on_cancel=True)
        if changes == self._changes:
            self._names = names
        return names

    def _all_names(self, contracts: Contracts) -> NameIndex:
        return NameIndex([*self._beside, *(contract.name for held in contracts.values() for contract in held)])

    def look(self) -> None:
        """Look again soon: some server has other tools."""
        self._names = None
        self._changes += 1
        self._asked.set()

    async def run(self) -> None:
        """Look whenever there is something new, until cancelled."""
        while True:
            await self._asked.wait()
            await anyio.sleep(SETTLE_S)
            self._asked = anyio.Event()
            contracts = self._contracts()
            stop = threading.Event()
            try:
                # Thousands of names and texts take seconds: calls go on meanwhile.
                look = partial(self._looked, contracts, stop)
                found = await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
            finally:
                stop.set()
            before, self._found = self._found, found
            for server, tools in found.items():
                await _tell(server, tools, before.get(server, {}))

    def _looked(self, contracts: Contracts, stop: threading.Event) -> dict[PluginName, Findings]:
        """Look at every contract, until `stop` is set: a thread that nobody waits for would keep the process from its end."""
        names = self._all_names(contracts)
        looks: dict[ToolName, tuple[Digest, DefinitionScan]] = {}
        found: dict[PluginName, Findings] = {}
        for server, held in contracts.items():
            for contract in held:
                if stop.is_set():
                    return found
                known = self._looks.get(contract.name)
                if known is None or known[0] != contract.listing_digest:
                    known = contract.listing_digest, scan_definition(Definition.from_contract(contract))
                    time.sleep(0)  # whoever answers calls goes first
                looks[contract.name] = known
                if findings := names.inspect(known[1]):
                    found.setdefault(server, {})[contract.name] = findings
        self._looks = looks
        return found


async def _tell(server: PluginName, tools: Findings, before: Findings) -> None:
    slices = Slices()
    for tool, findings in tools.items():
        if findings != before.get(tool):
            event(
                _log,
                logging.WARNING,
                "tool is suspicious",
                server=server,
                tool=tool,
                reasons=[finding.summary for finding in findings[:SHOWN_REASONS]],
                hint="`toolpost servers` shows the words",
            )
        await slices.give_way()
