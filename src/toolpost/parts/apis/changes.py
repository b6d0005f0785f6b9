"""Changes of APIs while the gateway runs: changed documents are taken over, and their tools held to the lock.

A document is the text of others, as the listing of a server is, so that a change is judged alike: against the definition in the
lock, or, for a tool that the lock does not name, against the one that this process served first. With `contracts = "enforce"` a
tool whose change is not harmless is quarantined. A document that cannot be read leaves the tools of the one before.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from toolpost.authoring import Plugin
from toolpost.base.events import event
from toolpost.base.ids import ToolName
from toolpost.base.stamps import Stamp, read_stamp
from toolpost.contracts.compatibility import Definition, Verdict, judge
from toolpost.contracts.contract import Contract
from toolpost.contracts.errors import BadLock, ToolpostError
from toolpost.contracts.findings import inspect_change
from toolpost.contracts.lockfile import LockedTools, is_same_promise
from toolpost.discovery.views import FilteredProvider, tags_of
from toolpost.host import Host
from toolpost.parts.apis.client import ApiClient
from toolpost.parts.apis.document import is_url
from toolpost.parts.apis.settings import ApiSettings
from toolpost.providers import Provider
from toolpost.providers.plugin_host import LoadedPlugin, PluginCandidate
from toolpost.providers.promises import SHOWN_RULES, ContractStatus, Mode
from toolpost.providers.quarantine import quarantine
from toolpost.settings.lock import read_lock
from toolpost.upstreams.spec import ServerSpec

_log = logging.getLogger("toolpost.apis")

LOOK_S: Final = 1.0
SETTLE_S: Final = 0.2
"""How long a file must be unchanged before it is read: an editor may truncate it before writing."""


@dataclass(frozen=True, kw_only=True)
class OpenApi:
    """The plugin of an API, and what it was made of."""

    plugin: Plugin
    client: ApiClient
    spec: ServerSpec
    """How it is reached, and logged in to."""
    digest: str
    """That of the document."""


Open = Callable[[str, str], Awaitable[OpenApi | None]]
"""Reads the document of an API, by name, and makes its plugin; None if the document has the given digest."""


class HeldApis:
    """Compares the tools of APIs with what they promised, whenever the catalog is made."""

    def __init__(self, apis: Collection[str], *, mode: Mode, locked: LockedTools | None) -> None:
        self._apis = apis
        self._mode = mode
        self.locked: LockedTools = locked or {}
        self._first: dict[ToolName, Definition] = {}
        self._checked: dict[ToolName, tuple[Contract, Definition, ContractStatus | None]] = {}
        """What was found last about each tool, for its contract and what it was compared with."""

    def derive(self, providers: Sequence[Provider]) -> Sequence[Provider]:
        """Return the providers, with changed tools of APIs quarantined if the lock is enforced."""
        return [self._hold(provider) if provider.name in self._apis else provider for provider in providers]

    def _hold(self, provider: Provider) -> Provider:
        found = {name: self._check(name, tool.contract) for name, tool in provider.tools.items()}
        changed = {name: status for name, status in found.items() if status is not None and not status.is_harmless}
        if self._mode != "enforce" or not changed:
            return provider
        return FilteredProvider(
            name=provider.name,
            tools={name: tool for name, tool in provider.tools.items() if name not in changed},
            quarantined={name: quarantine(provider.tools[name], status) for name, status in changed.items()},
            tags=tags_of(provider),
            refused=provider.refused,
            description=provider.description,
        )

    def _check(self, name: ToolName, contract: Contract) -> ContractStatus | None:
        locked, checked = self.locked.get(name), self._checked.get(name)
        promised = locked.definition if locked is not None else self._first.get(name)
        if checked is not None and checked[0] is contract and checked[1] is promised:
            return checked[2]
        new = Definition.from_contract(contract)
        self._first.setdefault(name, new)
        promised = promised or new
        status = None
        if not is_same_promise(promised, new):
            status = _judge(name, contract, promised, new, "pin" if locked is None else "lock")
        self._checked[name] = contract, promised, status
        return status


def _judge(
    name: ToolName, contract: Contract, promised: Definition, new: Definition, promise: Literal["lock", "pin"]
) -> ContractStatus:
    judgement, findings = judge(promised, new), inspect_change(promised, new)
    event(
        _log,
        logging.INFO if judgement.verdict is Verdict.COMPATIBLE and not findings else logging.WARNING,
        "tool changed",
        api=contract.name.partition("__")[0],
        tool=name,
        verdict=judgement.verdict.value,
        rules=[change.rule for change in judgement.changes][:SHOWN_RULES],
        suspicions=[finding.summary for finding in findings],
    )
    return ContractStatus(promise=promise, promised=promised, judgement=judgement, findings=findings)


class DocumentFollower:
    """Follows the documents of all APIs, and the lock. `run` it while the gateway runs."""

    def __init__(
        self, host: Host, apis: Mapping[str, ApiSettings], open_api: Open, served: dict[str, OpenApi], held: HeldApis
    ) -> None:
        """Take what is served, by name, which is kept up to date; an API whose document could not be read is not in it."""
        self._host = host
        self._apis = apis
        self._open = open_api
        self._served = served
        self._held = held
        self._broken: set[str] = set()
        # Before anything is read again: what has changed since the start must not be missed.
        self._lock_stamp = read_stamp(host.config.lock_path)
        self._stamps = {name: self._read_stamp(name) for name in apis}

    async def run(self, *, look_s: float = LOOK_S) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_lock, look_s)
            for name, api in self._apis.items():
                loaded = self._find_loaded(name)
                if loaded is None or loaded.state == "disabled":
                    continue
                if not is_url(api.document):
                    tasks.start_soon(self._follow_file, name, tasks, look_s)
                elif api.refresh_s:
                    tasks.start_soon(self._follow_url, name, tasks, api.refresh_s)

    async def _follow_file(self, name: str, tasks: TaskGroup, look_s: float) -> None:
        while True:
            await anyio.sleep(look_s)
            found = self._read_stamp(name)
            if found == self._stamps[name]:
                continue
            await anyio.sleep(SETTLE_S)
            if found == self._read_stamp(name):
                self._stamps[name] = found
                await self.take_over(name, tasks)

    async def _follow_url(self, name: str, tasks: TaskGroup, refresh_s: float) -> None:
        while True:
            await anyio.sleep(refresh_s)
            await self.take_over(name, tasks)

    async def _follow_lock(self, look_s: float) -> None:
        path = self._host.config.lock_path
        while True:
            await anyio.sleep(look_s)
            if (found := read_stamp(path)) == self._lock_stamp:
                continue
            self._lock_stamp = found
            try:
                locked = await to_thread.run_sync(read_lock, path)
            except BadLock:
                continue  # Reported where the lock of servers is followed.
            if locked is not None:
                self._held.locked = locked
                self._host.plugins.list_again(self._apis)

    async def take_over(self, name: str, tasks: TaskGroup) -> None:
        """Serve what the document says now; if it cannot be read, say so and serve what it said before."""
        served = self._served.get(name)
        digest = served.digest if served is not None and name not in self._broken else ""
        opened: OpenApi | None = None
        try:
            opened = await self._open(name, digest)
            if opened is None:
                return
            plugin = opened.plugin
            loaded = await self._host.plugins.reload(PluginCandidate(name=name, load=lambda: plugin))
        except Exception as error:  # noqa: BLE001 (a document may be anything)
            if opened is not None:
                await opened.client.aclose()
            self._report(name, error)
            return
        self._broken.discard(name)
        self._served[name] = opened
        count = len(loaded.provider.tools) if isinstance(loaded, LoadedPlugin) and loaded.provider is not None else 0
        event(_log, logging.INFO, "document taken over", api=name, tools=count)
        if served is not None:
            tasks.start_soon(self._retire, name, served.client)

    async def _retire(self, name: str, client: ApiClient) -> None:
        """Close the connections of a former plugin once its calls have ended or reached their time limit."""
        try:
            await anyio.sleep(self._apis[name].timeout_s or self._host.config.limits.timeout_s)
        finally:
            with anyio.CancelScope(shield=True):
                await client.aclose()

    def _report(self, name: str, error: Exception) -> None:
        self._broken.add(name)
        reason = error.message if isinstance(error, ToolpostError) else f"{type(error).__name__}: {error}"
        event(_log, logging.WARNING, "document not taken over; the one before goes on", api=name, reason=reason)
        if (loaded := self._find_loaded(name)) is not None:
            self._host.plugins.degrade(loaded, "serves its former document, since the new one cannot be read", error)

    def _find_loaded(self, name: str) -> LoadedPlugin | None:
        return next((plugin for plugin in self._host.plugins.plugins if plugin.reference == name), None)

    def _read_stamp(self, name: str) -> Stamp | None:
        source = self._apis[name].document
        return None if is_url(source) else read_stamp(Path(self._host.config.project) / source)
