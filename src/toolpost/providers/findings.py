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
from toolpost.contracts.findings import Look, Names, Suspicion, look_at
from toolpost.upstreams.lists import Slices

_log = logging.getLogger("toolpost.contracts")

SHOWN_REASONS: Final = 5

SCAN_DELAY_S: Final = 0.5
"""How long it waits before it looks: a command that is over in a moment need not, and many changes are looked at together."""

Contracts = Mapping[PluginName, Sequence[Contract]]
Suspicions = dict[ToolName, Sequence[Suspicion]]


class FindingsScanner:
    """What is suspected of the tools of all servers. `run` must be running."""

    def __init__(self, contracts: Callable[[], Contracts], *, beside: Iterable[str] = ()) -> None:
        """Look at these contracts; `beside` are the names of tools that are known and not looked at."""
        self._contracts = contracts
        self._beside = frozenset(beside)
        self._looks: dict[ToolName, tuple[Digest, Look]] = {}
        self._found: dict[PluginName, Suspicions] = {}
        self._asked = anyio.Event()
        self._names: Names | None = None
        self._changes = 0

    def of(self, server: PluginName) -> Suspicions:
        """Return what is suspected of a server's tools, as far as they have been looked at."""
        return self._found.get(server, {})

    async def find_names(self) -> Names:
        """Return the names of all tools that there are; after a change they are read in a thread, for there may be thousands."""
        if self._names is not None:
            return self._names
        changes = self._changes
        names = await anyio.to_thread.run_sync(self._make_names, self._contracts(), abandon_on_cancel=True)
        if changes == self._changes:
            self._names = names
        return names

    def _make_names(self, contracts: Contracts) -> Names:
        return Names([*self._beside, *(contract.name for held in contracts.values() for contract in held)])

    def look(self) -> None:
        """Look again soon: some server has other tools."""
        self._names = None
        self._changes += 1
        self._asked.set()

    async def run(self) -> None:
        """Look whenever there is something new, until cancelled."""
        while True:
            await self._asked.wait()
            await anyio.sleep(SCAN_DELAY_S)
            self._asked = anyio.Event()
            contracts = self._contracts()
            stop = threading.Event()
            try:
                # Thousands of names and texts take seconds: calls go on meanwhile.
                look = partial(self._scan, contracts, stop)
                found = await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
            finally:
                stop.set()
            before, self._found = self._found, found
            for server, tools in found.items():
                await _log_findings(server, tools, before.get(server, {}))

    def _scan(self, contracts: Contracts, stop: threading.Event) -> dict[PluginName, Suspicions]:
        """Look at every contract, until `stop` is set: a thread that nobody waits for would keep the process from its end."""
        names = self._make_names(contracts)
        looks: dict[ToolName, tuple[Digest, Look]] = {}
        found: dict[PluginName, Suspicions] = {}
        for server, held in contracts.items():
            for contract in held:
                if stop.is_set():
                    return found
                known = self._looks.get(contract.name)
                if known is None or known[0] != contract.digest_of_listing:
                    known = contract.digest_of_listing, look_at(Definition.from_contract(contract))
                    time.sleep(0)  # whoever answers calls goes first
                looks[contract.name] = known
                if suspicions := names.suspicions(known[1]):
                    found.setdefault(server, {})[contract.name] = suspicions
        self._looks = looks
        return found


async def _log_findings(server: PluginName, tools: Suspicions, before: Suspicions) -> None:
    slices = Slices()
    for tool, suspicions in tools.items():
        if suspicions != before.get(tool):
            event(
                _log,
                logging.WARNING,
                "tool is suspicious",
                server=server,
                tool=tool,
                reasons=[suspicion.told for suspicion in suspicions[:SHOWN_REASONS]],
                hint="`toolpost servers` shows the words",
            )
        await slices.give_way()
