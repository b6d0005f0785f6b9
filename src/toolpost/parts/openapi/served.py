"""The APIs of a gateway: opened at the start, and again when their settings or documents change.

A document is the text of others, as the listing of a server is: the tools of an API are held to their lock or pin as those of a
server are (`providers.quarantine`). A document that can no longer be read leaves the tools of its predecessor.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, overload

import anyio
from anyio.abc import TaskGroup

from toolpost import ToolpostError
from toolpost.base import event, read_stamp
from toolpost.contracts import BadConfiguration
from toolpost.credentials import CallerCredentials
from toolpost.parts import Host, PluginCandidate
from toolpost.parts.openapi.settings import ApiSettings, enabled_apis, is_url
from toolpost.settings import Config
from toolpost.upstreams import ServerSpec

if TYPE_CHECKING:
    from toolpost.parts.openapi.api import OpenApi

_log = logging.getLogger("toolpost.apis")

REFRESH_S: Final = 300.0
"""How often a document at a URL is fetched again."""
LOOK_S: Final = 1.0
SETTLE_S: Final = 0.2
"""How long a file must be unchanged before it is read: an editor may truncate it before writing."""


def check_names(config: Config, apis: Iterable[str]) -> None:
    """Raise `BadConfiguration` for an API with the name of a server: their tools and credentials would be mixed up."""
    for name in apis:
        if name in config.servers:
            raise BadConfiguration(f"apis.{name}: a server has this name already.", hint="rename one of them")


class ServedApis:
    """The APIs of one gateway. While it runs, `open_running`."""

    def __init__(self, host: Host, credentials: CallerCredentials) -> None:
        self.logins: dict[str, ServerSpec] = {}
        """Those that people log in to, by name."""
        self._host = host
        self._credentials = credentials
        self._config = host.config
        """The settings in force; replaced by a reload."""
        self._apis: dict[str, ApiSettings] = {}
        self._open: dict[str, OpenApi] = {}
        """Those of them whose document could be read."""
        self._broken: set[str] = set()
        """Those whose document cannot be read now."""
        self._stamps: dict[str, object] = {}
        """What each document was when it was last read."""
        self._tasks: TaskGroup | None = None
        self._following: dict[str, anyio.CancelScope] = {}
        self._replacing = anyio.Lock()

    async def open_first(self, apis: Mapping[str, ApiSettings]) -> list[PluginCandidate]:
        """Open the APIs of the start. One whose document cannot be read fails to load, and the others are served."""
        candidates: dict[str, PluginCandidate] = {}

        async def open_one(name: str) -> None:
            try:
                opened = await self._read(self._config, name, apis[name])
            except Exception as error:  # noqa: BLE001 (a document may be anything, and must not take the others down)
                candidates[name] = PluginCandidate(name=name, load=partial(_fail, error))
            else:
                candidates[name] = self._use(name, opened)

        self._apis = dict(apis)
        # At once: each may wait for a document from the network.
        async with anyio.create_task_group() as tasks:
            for name in apis:
                tasks.start_soon(open_one, name)
        return [candidates[name] for name in apis]

    async def aclose(self) -> None:
        for opened in self._open.values():
            await opened.client.aclose()

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Follow the documents."""
        async with anyio.create_task_group() as self._tasks:
            self._start_following(self._apis)
            yield
            self._tasks.cancel_scope.cancel()

    async def prepare_reload(self, config: Config) -> Callable[[], Awaitable[None]] | None:
        """Open the APIs that a configuration adds or changes; returns what serves them, None if there is nothing to do.

        As with servers, all or none: raises, and nothing has changed, if one of them cannot be opened.
        """
        apis = enabled_apis(config)
        check_names(config, apis)
        for name in apis.keys() - self._apis.keys():
            if self._host.plugins.serves(name) or name in self._host.plugins.servers:
                raise BadConfiguration(f"apis.{name}: a plugin has this name already.", hint="rename one of them")
        opened: dict[str, OpenApi] = {}

        async def open_one(name: str) -> None:
            opened[name] = await self._read(config, name, apis[name])

        async with anyio.create_task_group() as tasks:
            for name, api in apis.items():
                if api != self._apis.get(name) and self._is_served(name):
                    tasks.start_soon(open_one, name)
        return partial(self._put_in_force, config, apis, opened) if apis != self._apis else None

    async def _put_in_force(self, config: Config, apis: dict[str, ApiSettings], opened: "dict[str, OpenApi]") -> None:
        before, removed = self._apis, self._apis.keys() - apis.keys()
        # The lock is held while a plugin is replaced, so that no follower is cancelled in the middle of that.
        async with self._replacing:
            for name in removed | opened.keys():
                if name in self._following:
                    self._following.pop(name).cancel()
            self._config, self._apis = config, apis
            for name in removed:
                await self._host.plugins.remove(name)
                self.logins.pop(name, None)
                self._broken.discard(name)
                if (former := self._open.pop(name, None)) is not None:
                    self._start_retiring(former)
            for name, api in opened.items():
                await self._replace(name, api)
        self._start_following(opened)
        event(
            _log,
            logging.INFO,
            "APIs applied",
            added=sorted(opened.keys() - before.keys()),
            removed=sorted(removed),
            changed=sorted(opened.keys() & before.keys()),
        )

    async def take_over(self, name: str) -> None:
        """Serve what the document of an API says now; if it cannot be read, say so and serve what it said before."""
        served = self._open.get(name)
        known = served.digest if served is not None and name not in self._broken else ""
        try:
            opened = await self._read(self._config, name, self._apis[name], known)
        except Exception as error:  # noqa: BLE001 (a document may be anything)
            self._report(name, error)
            return
        if opened is None:
            return
        async with self._replacing:
            if await self._replace(name, opened):
                tools = [*opened.plugin.toolpost_tools()]
                event(_log, logging.INFO, "document applied", api=name, tools=len(tools))

    async def _replace(self, name: str, opened: "OpenApi") -> bool:
        former = self._open.get(name)
        try:
            await self._host.plugins.reload(self._use(name, opened))
        except Exception as error:  # noqa: BLE001 (a document may be anything)
            if former is not None:
                self._use(name, former)
            self._report(name, error)
            return False
        self._broken.discard(name)
        if former is not None:
            self._start_retiring(former)
        return True

    def _use(self, name: str, opened: "OpenApi") -> PluginCandidate:
        self._open[name] = opened
        if opened.spec.auth is not None:
            self.logins[name] = opened.spec
        else:
            self.logins.pop(name, None)
        contracts = self._apis[name].contracts or self._config.contracts
        return PluginCandidate(name=name, load=lambda: opened.plugin, contracts=contracts)

    def _start_retiring(self, former: "OpenApi") -> None:
        """Close the connections of a former plugin once its calls have ended or reached their time limit."""
        # Its tools, perhaps thousands, do not wait for that.
        client, timeout_s = former.client, former.timeout_s

        async def retire() -> None:
            try:
                await anyio.sleep(timeout_s)
            finally:
                with anyio.CancelScope(shield=True):
                    await client.aclose()

        assert self._tasks is not None, "the APIs are not running"
        self._tasks.start_soon(retire)

    def _report(self, name: str, error: Exception) -> None:
        self._broken.add(name)
        reason = error.message if isinstance(error, ToolpostError) else f"{type(error).__name__}: {error}"
        event(_log, logging.WARNING, "document not applied; the previous one stays", api=name, reason=reason)
        for loaded in self._host.plugins.plugins:
            if loaded.reference == name:
                what = "serves its former document, since the new one cannot be read"
                loaded.degrade(what, error)

    def _is_served(self, name: str) -> bool:
        settings = self._host.config.plugins
        return name not in settings.disable and (not settings.chosen or name in settings.chosen)

    def _start_following(self, names: Collection[str]) -> None:
        assert self._tasks is not None, "the APIs are not running"
        for name in filter(self._is_served, names):
            self._tasks.start_soon(self._follow, name)

    async def _follow(self, name: str) -> None:
        api = self._apis[name]
        with anyio.CancelScope() as self._following[name]:
            while True:
                if is_url(api.document):
                    await anyio.sleep(REFRESH_S)
                else:
                    await anyio.sleep(LOOK_S)
                    found = self._read_stamp(api)
                    if found == self._stamps[name]:
                        continue
                    await anyio.sleep(SETTLE_S)
                    if found != self._read_stamp(api):
                        continue
                await self.take_over(name)

    def _read_stamp(self, api: ApiSettings) -> object:
        return None if is_url(api.document) else read_stamp(Path(self._config.project) / api.document)

    @overload
    async def _read(self, config: Config, name: str, api: ApiSettings) -> "OpenApi": ...
    @overload
    async def _read(self, config: Config, name: str, api: ApiSettings, known: str) -> "OpenApi | None": ...
    async def _read(self, config: Config, name: str, api: ApiSettings, known: str = "") -> "OpenApi | None":
        # Loaded for the first API: most gateways have none.
        from toolpost.parts.openapi.api import open_api

        # Before the document is read: what changes in between must not be missed.
        self._stamps[name] = self._read_stamp(api)
        return await open_api(
            config,
            name,
            api,
            self._credentials,
            known=known,
            # An API that is served goes on as it is, and people are told.
            accepts_copy=name not in self._open,
            note_many=self._host.plugins.note_many,
        )


def _fail(error: Exception) -> NoReturn:
    raise error
