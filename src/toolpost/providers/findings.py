"""Scans the definitions of servers' tools for text that may be meant for the model: in a thread, once for each definition.

What counts as a finding is decided in `contracts.findings`; this module runs the scan and keeps its results, also in the store: a
definition that was scanned by the same rules is not scanned again after a start.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from toolpost.base.events import event
from toolpost.base.ids import Digest, PluginName, ToolName
from toolpost.base.log_limit import TOOL_LINES, LogLimit
from toolpost.contracts import Contract, Definition
from toolpost.contracts.findings import DefinitionScan, Finding, NameIndex, scan_definition
from toolpost.contracts.source_digest import rules_digest
from toolpost.store.verdicts import Verdicts
from toolpost.upstreams.lists import Slices

_log = logging.getLogger("toolpost.contracts")

SHOWN_REASONS: Final = 5

SCAN_DELAY_S: Final = 0.5
"""The delay before a scan: commands that end within it need none, and several changes are scanned together."""

Contracts = Mapping[PluginName, Sequence[Contract]]
Findings = dict[ToolName, Sequence[Finding]]
Scans = dict[Digest, DefinitionScan]
"""By `listing_digest`."""


_decode = msgspec.json.Decoder(Scans).decode


class FindingsScanner:
    """The findings about the tools of all servers. `run` must be running."""

    def __init__(
        self, contracts: Callable[[], Contracts], verdicts: Verdicts, *, other_tool_names: Iterable[str] = ()
    ) -> None:
        """Scan these contracts; `other_tool_names` are names of other tools, which are not scanned but can be imitated."""
        self._contracts = contracts
        self._verdicts = verdicts
        self._other_names = frozenset(other_tool_names)
        self._scans: dict[PluginName, Scans] = {}
        self._found: dict[PluginName, Findings] = {}
        self._lines = LogLimit(lines=TOOL_LINES)
        self._requested = anyio.Event()
        self._names: NameIndex | None = None
        self._changes = 0

    def of(self, server: PluginName) -> Findings:
        """Return the findings about a server's tools; only tools that were scanned and have findings are in it."""
        return self._found.get(server, {})

    async def find_names(self) -> NameIndex:
        """Return the names of all tools; after a change they are read in a thread, since there may be thousands."""
        if self._names is not None:
            return self._names
        changes = self._changes
        names = await anyio.to_thread.run_sync(self._make_names, self._contracts(), abandon_on_cancel=True)
        if changes == self._changes:
            self._names = names
        return names

    def _make_names(self, contracts: Contracts) -> NameIndex:
        return NameIndex([*self._other_names, *(contract.name for held in contracts.values() for contract in held)])

    def request_scan(self) -> None:
        """Have everything scanned again soon, after the tools of a server changed."""
        self._names = None
        self._changes += 1
        self._requested.set()

    async def run(self) -> None:
        while True:
            await self._requested.wait()
            await anyio.sleep(SCAN_DELAY_S)
            self._requested = anyio.Event()
            # In a method of its own: a variable would keep the contracts of tools that are replaced while this waits.
            await self._scan_all()

    async def _scan_all(self) -> None:
        contracts = self._contracts()
        before = {server: await self._recall(server) for server in contracts}
        stop = threading.Event()
        try:
            # In a thread: thousands of names and texts take seconds.
            scan = partial(self._scan, contracts, before, stop)
            self._scans, found = await anyio.to_thread.run_sync(scan, abandon_on_cancel=True)
        finally:
            stop.set()
        known, self._found = self._found, found
        for server, tools in found.items():
            await _log_findings(server, tools, known.get(server, {}), self._lines)
        for server, scans in self._scans.items():
            if scans.keys() != before[server].keys():
                await self._remember(server, scans)

    def _scan(
        self, contracts: Contracts, known: Mapping[PluginName, Scans], stop: threading.Event
    ) -> tuple[dict[PluginName, Scans], dict[PluginName, Findings]]:
        """Scan every contract until `stop` is set: an abandoned thread would keep the process from exiting."""
        names = self._make_names(contracts)
        scans: dict[PluginName, Scans] = {server: {} for server in contracts}
        found: dict[PluginName, Findings] = {}
        for server, held in contracts.items():
            for contract in held:
                if stop.is_set():
                    return scans, found
                digest = contract.listing_digest
                scan = known[server].get(digest)
                if scan is None:
                    scan = scan_definition(Definition.from_contract(contract))
                    time.sleep(0)  # Release the interpreter lock: the event loop goes first.
                scans[server][digest] = scan
                if findings := names.inspect(scan):
                    found.setdefault(server, {})[contract.name] = findings
        return scans, found

    async def _recall(self, server: PluginName) -> Scans:
        """Return the scans of a server's tools: those of this process, else those in the store."""
        if server in self._scans:
            return self._scans[server]
        try:
            rules = await anyio.to_thread.run_sync(rules_digest)
            written = await self._verdicts.recall("findings", server, rules)
            return {} if written is None else await anyio.to_thread.run_sync(_decode, written)
        except Exception as error:  # noqa: BLE001 (without them, the next scan takes longer)
            event(_log, logging.WARNING, "findings not recalled", server=server, reason=str(error))
            return {}

    async def _remember(self, server: PluginName, scans: Scans) -> None:
        try:
            written = (await anyio.to_thread.run_sync(msgspec.json.encode, scans)).decode()
            await self._verdicts.remember("findings", server, rules_digest(), written)
        except Exception as error:  # noqa: BLE001 (the scan after the next start takes longer)
            event(_log, logging.WARNING, "findings not remembered", server=server, reason=str(error))


async def _log_findings(server: PluginName, tools: Findings, before: Findings, lines: LogLimit) -> None:
    slices = Slices()
    for tool, findings in tools.items():
        if findings != before.get(tool) and (count := lines.take(server)):
            event(
                _log,
                logging.WARNING,
                "tool is suspicious",
                server=server,
                tool=tool,
                reasons=[finding.summary for finding in findings[:SHOWN_REASONS]],
                hint="`toolpost servers` shows the words",
                tools=count if count > 1 else None,
            )
        await slices.give_way()
