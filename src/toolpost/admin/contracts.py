"""Tools that are not as promised by the lock or by their pin, for an operator who accepts or refuses their changes."""

import glob
import hashlib
import json
import logging
from dataclasses import dataclass, field

from anyio import to_thread

from toolpost.admin.lock_file import LockFile, accept_changes, list_tools, read_pins
from toolpost.base import JsonObject, ToolName, event
from toolpost.contracts.compatibility import Definition
from toolpost.contracts.errors import InvalidRequest, NotFound
from toolpost.providers.contract_watch import ContractStatus
from toolpost.providers.plugins import Plugins
from toolpost.providers.quarantine import PinnedPlugin
from toolpost.providers.server_provider import ServerProvider
from toolpost.providers.servers import Servers
from toolpost.settings import Config
from toolpost.store import Store

_log = logging.getLogger("toolpost.admin")


@dataclass(frozen=True, kw_only=True)
class ChangedTool:
    """A tool that is not as promised."""

    name: ToolName
    status: ContractStatus
    """What was promised, and the judgement on the change."""
    is_quarantined: bool
    _provider: ServerProvider | PinnedPlugin = field(repr=False)

    @property
    def server(self) -> str:
        return self._provider.name

    @property
    def own_name(self) -> str:
        """Its name at its server."""
        return next(contract.terms.name for contract in self._provider.contracts if contract.name == self.name)

    def write(self) -> tuple[str, str]:
        """Write its definition as it was promised and as it is now, as texts that can be compared line by line."""
        return _write(self.status.promised), _write(self._provider.define(self.name))

    @property
    def digest(self) -> str:
        """Identify its definition as it is now, so that no other is accepted than was shown."""
        return hashlib.sha256(_write(self._provider.define(self.name)).encode("utf-8", "surrogatepass")).hexdigest()

    def to_json(self) -> JsonObject:
        """Summarize it: the keys of `contracts` in the report of a server, its name and its server."""
        return {
            "tool": self.name,
            "server": self.server,
            **self.status.as_object(),
            "quarantined": self.is_quarantined,
            "isHarmless": self.status.is_harmless,
        }


@dataclass(frozen=True, kw_only=True)
class ContractChanges:
    """The tools of a gateway that are not as promised, of servers and of pinned plugins."""

    config: Config
    store: Store
    plugins: Plugins
    servers: Servers

    @property
    def has_lock(self) -> bool:
        """Whether a lock is what was promised; else the pins are."""
        return self.servers.watched_tools.watch.has_lock

    def list(self) -> list[ChangedTool]:
        """Return all of them."""
        return list_changed_tools(self.servers)

    def find(self, name: str) -> ChangedTool:
        """Return one; raises `NotFound` for a tool that is as promised."""
        for found in list_changed_tools(self.servers):
            if found.name == name:
                return found
        raise NotFound(f"`{name[:128]}` is as it was promised, or not there.", hint="reload the list")

    async def accept(self, name: str, *, digest: str, caller: str) -> JsonObject:
        """Write a tool to the lock as it is now, as `toolpost lock --accept` does.

        Raises `InvalidRequest` if it is no longer the definition with this digest.
        """
        tool, servers = self.find(name), self.servers
        if tool.digest != digest:
            raise InvalidRequest(
                f"`{tool.name}` has changed again since it was shown.", hint="look at the changes again"
            )
        event(_log, logging.INFO, "change accepted", caller=caller, server=tool.server, tool=tool.name)
        live = list_tools(self.config, [*self.plugins.providers, *servers.providers.values()])
        file = LockFile.of(self.config, None)
        # Without a lock the pins are the baseline, and a tool without a pin is new: as in `toolpost lock --accept`.
        names = [provider.name for provider in servers.watched] if file.tools is None else []
        pinned = await read_pins(self.store.pins, names, lambda _: None)
        base = file.tools if file.tools is not None else {**live, **pinned}
        after = accept_changes(base, live, [glob.escape(tool.name)])
        written = await to_thread.run_sync(file.replace, after)
        # At once, although the file is followed: the page shows what holds now.
        await servers.watched_tools.relock(after)
        return {"path": str(file.path), "written": written, "tools": len(after)}


def list_changed_tools(servers: Servers) -> list[ChangedTool]:
    """Return every tool that is not as promised."""
    return [
        ChangedTool(name=name, status=status, is_quarantined=provider.is_quarantined(name), _provider=provider)
        for provider in servers.watched
        for name, status in provider.statuses.items()
    ]


def _write(definition: Definition) -> str:
    return json.dumps(definition.to_json(), indent=2, ensure_ascii=False, sort_keys=True)
