"""Everything whose tools are compared with their lock or pin: servers, and plugins whose definitions others write.

`contract_watch` compares and judges, `quarantine` decides what a change means for callers, `findings` scans for text that may be
meant for the model. This module has the tools compared again when one of these, or the lock, has something new.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio

from toolpost.base.ids import PluginName
from toolpost.contracts.compatibility import Definition, Judgement
from toolpost.contracts.lockfile import LockedTools
from toolpost.providers.contract_watch import ContractWatch, Mode
from toolpost.providers.findings import FindingsScanner
from toolpost.providers.functions import FunctionProvider
from toolpost.providers.quarantine import PinnedPlugin
from toolpost.providers.server_provider import ServerProvider
from toolpost.store.known_tools import Pins
from toolpost.store.verdicts import Verdicts

JUDGE_LIMIT_S: Final = 5.0
"""How long the start waits for judgements on changed tools."""


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """The baseline of tools, and the comparison."""

    locked: LockedTools | None
    mode: Mode
    """What happens to a tool that differs, unless the settings of its server say otherwise."""
    judge_slowly: Callable[[PluginName, Definition, Definition], Awaitable[Judgement]]
    """Makes the judgements that may take long, outside this process."""
    other_tool_names: Collection[str] = ()
    """The names of other tools, which are not compared but can be imitated."""


class WatchedTools:
    """The servers and plugins whose tools are compared. `run` must be running."""

    def __init__(
        self,
        providers: Mapping[str, ServerProvider],
        pins: Pins,
        verdicts: Verdicts,
        options: WatchOptions,
        on_change: Callable[[Collection[str]], None],
    ) -> None:
        """`providers` are those of servers, now and later; `on_change` is called with the name of a plugin that changed."""
        self._providers = providers
        self._on_change = on_change
        self._pinned: dict[PluginName, PinnedPlugin] = {}
        self.findings = FindingsScanner(
            lambda: {provider.name: provider.contracts for provider in self.list_all()},
            verdicts,
            other_tool_names=options.other_tool_names,
        )
        self.watch = ContractWatch(
            pins=pins,
            locked=options.locked,
            mode=options.mode,
            names=self.findings.find_names,
            judge_slowly=options.judge_slowly,
        )
        self._unchecked: set[PluginName] = set()
        self._has_unchecked = anyio.Event()

    def list_all(self) -> list[ServerProvider | PinnedPlugin]:
        """Return what is watched; of a server whose callers have their own credentials, what callers without a name see."""
        return [*self._providers.values(), *self._pinned.values()]

    async def run(self) -> None:
        """Compare, judge and scan until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.watch.run, self._recheck)
            tasks.start_soon(self.findings.run)
            tasks.start_soon(self._recheck_noted)

    async def pin(self, provider: FunctionProvider, mode: Mode) -> PinnedPlugin:
        """Compare the tools of a plugin with their lock or pin from now on, in place of what was compared under its name before.

        Returns once changes are judged, which takes a moment, or after `JUDGE_LIMIT_S`.
        """
        name = provider.name
        pinned = PinnedPlugin(provider, self.watch, mode, partial(self._note_plugin, name))
        if name not in self._pinned:
            await self.watch.recall(name)
        self._pinned[name] = pinned
        await pinned.recheck()
        self.findings.request_scan()
        await self.watch.settle(JUDGE_LIMIT_S)
        return pinned

    def unpin(self, name: str) -> None:
        """Forget a plugin whose tools were compared."""
        if self._pinned.pop(PluginName(name), None) is not None:
            self._note_plugin(PluginName(name))

    def _note_plugin(self, name: PluginName) -> None:
        self.findings.request_scan()
        self._on_change([name])

    def note_change(self, server: ServerProvider) -> None:
        """Have findings made again after the tools of a server changed, also those about tools of others."""
        self.findings.request_scan()
        for other in self.list_all():
            # A tool of the changed server may imitate one of these, or no longer do so.
            if other is not server and other.statuses:
                self._unchecked.add(other.name)
                self._has_unchecked.set()

    async def relock(self, locked: LockedTools | None) -> bool:
        """Compare every tool with another lock; returns whether it differs from the previous lock."""
        is_another = await self.watch.relock(locked)
        for provider in self._list_for_all_owners() if is_another else ():
            await provider.recheck()
        return is_another

    def _list_for_all_owners(self) -> list[ServerProvider | PinnedPlugin]:
        of_servers = [one for provider in self._providers.values() for one in provider.all_owners]
        return [*of_servers, *self._pinned.values()]

    async def _recheck(self, server: PluginName) -> None:
        for provider in self._list_for_all_owners():
            if provider.pin_name == server:
                await provider.recheck()

    async def _recheck_noted(self) -> None:
        # Not in `note_change`, which runs under the lock of one provider: two providers would wait for each other.
        while True:
            await self._has_unchecked.wait()
            self._has_unchecked = anyio.Event()
            while self._unchecked:
                await self._recheck(self._unchecked.pop())
