"""What servers have besides tools (resources, prompts, completions): listed together, asked of the one that has them."""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import anyio
import msgspec

from toolpost.contracts.errors import ToolpostError, UpstreamUnavailable
from toolpost.contracts.events import event
from toolpost.contracts.ids import JsonObject
from toolpost.sources.servers import ServerSource
from toolpost.upstreams.wire import ServerRefused, encode

_log = logging.getLogger("toolpost.relay")

LIST_LIMIT_S: Final = 20.0
PAGES_LIMIT: Final = 100
SEPARATOR: Final = "__"
PARTS_LIMIT: Final = 32
"""How many parts of all servers are kept apart: callers choose them."""

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602


class Relay:
    """The servers behind one gateway, as far as their tools are not meant."""

    def __init__(self, sources: Mapping[str, ServerSource]) -> None:
        self.sources = sources
        self._without: set[tuple[str, str]] = set()
        """Servers that do not know a method: they are not asked again."""
        self._owner_of: dict[str, str] = {}
        """Which server listed a URI."""
        self.among = lru_cache(maxsize=PARTS_LIMIT)(self._among)
        """Return the same for the servers of these names alone: the others do not exist for it."""

    def _among(self, names: frozenset[str]) -> "Relay":
        return Relay(_Some(self.sources, names))

    async def resources(self) -> list[JsonObject]:
        """List the resources of every server, under their own URIs."""
        return await self._listed("resources/list", "resources", self._note_owner)

    async def templates(self) -> list[JsonObject]:
        """List the resource templates of every server."""
        return await self._listed("resources/templates/list", "resourceTemplates", lambda _server, item: item)

    async def prompts(self) -> list[JsonObject]:
        """List the prompts of every server, named `server__prompt`."""
        return await self._listed("prompts/list", "prompts", _prefixed)

    async def read(self, uri: str, params: JsonObject) -> JsonObject:
        """Read a resource from the server that listed it, else from the first that knows it."""
        if uri not in self._owner_of:
            await self.resources()
        owner = self._owner_of.get(uri)
        asked = [owner] if owner in self.sources else list(self.sources)
        refusal = ServerRefused(INVALID_PARAMS, f"No server has the resource {uri[:200]}", {"uri": uri[:200]})
        for server in asked:
            try:
                return await self._ask(str(server), "resources/read", params)
            except ServerRefused as refused:
                refusal = refused if owner else refusal
        raise refusal

    async def prompt(self, name: str, params: JsonObject) -> JsonObject:
        """Get a prompt from its server."""
        server, prompt = self._split(name)
        return await self._ask(server, "prompts/get", params | {"name": prompt})

    async def complete(self, params: JsonObject) -> JsonObject:
        """Complete an argument of a prompt, or of a resource template, at the server that has it."""
        reference = params.get("ref") or {}
        if reference.get("type") == "ref/prompt":
            server, prompt = self._split(str(reference.get("name")))
            return await self._ask(server, "completion/complete", params | {"ref": reference | {"name": prompt}})
        for server in self.sources:
            try:
                return await self._ask(server, "completion/complete", params)
            except ServerRefused as refused:
                event(_log, logging.DEBUG, "completion refused", server=server, reason=refused.message)
        raise ServerRefused(INVALID_PARAMS, "No server completes this")

    def _split(self, name: str) -> tuple[str, str]:
        server, _, rest = name.partition(SEPARATOR)
        if server not in self.sources or not rest:
            raise unknown_prompt(name)
        return server, rest

    def _note_owner(self, server: str, item: JsonObject) -> JsonObject:
        self._owner_of.setdefault(str(item.get("uri")), server)
        return item

    async def _listed(
        self, method: str, field: str, shown: Callable[[str, JsonObject], JsonObject]
    ) -> list[JsonObject]:
        """Ask every server at once; one that fails is left out and named in the log."""
        found: dict[str, list[JsonObject]] = {}

        async def ask(server: str) -> None:
            try:
                with anyio.fail_after(LIST_LIMIT_S):
                    found[server] = [shown(server, item) for item in await self._pages(server, method, field)]
            except (ServerRefused, ToolpostError, TimeoutError) as error:
                event(_log, logging.INFO, "server left out of a list", server=server, method=method, reason=str(error))

        async with anyio.create_task_group() as tasks:
            for server in self.sources:
                if (server, method) not in self._without:
                    tasks.start_soon(ask, server)
        return [item for server in self.sources for item in found.get(server, ())]

    async def _pages(self, server: str, method: str, field: str) -> list[JsonObject]:
        items: list[JsonObject] = []
        params: JsonObject = {}
        for _ in range(PAGES_LIMIT):
            page = await self._ask(server, method, params)
            items += [item for item in page.get(field) or () if isinstance(item, dict)]
            if page.get("nextCursor") is None:
                return items
            params = {"cursor": page["nextCursor"]}
        raise UpstreamUnavailable(f"`{server}` has a list without an end")

    async def _ask(self, server: str, method: str, params: JsonObject) -> JsonObject:
        name = params.get("uri") or params.get("name")
        fields = encode({key: value for key, value in params.items() if key != "_meta"})[1:-1]
        try:
            raw = await self.sources[server].supervisor.request(
                method, fields, name=name if isinstance(name, str) else None
            )
        except ServerRefused as refused:
            if refused.code == METHOD_NOT_FOUND:
                self._without.add((server, method))
            raise
        return _object(raw, server)


class _Some(Mapping[str, ServerSource]):
    """Some of the servers, whichever they are at the moment."""

    def __init__(self, sources: Mapping[str, ServerSource], names: frozenset[str]) -> None:
        self._all = sources
        self._names = names

    def __getitem__(self, name: str) -> ServerSource:
        if name not in self._names:
            raise KeyError(name)
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._all if name in self._names)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def unknown_prompt(name: str) -> ServerRefused:
    """Say that there is no such prompt, or none for whoever asks: they are not told which."""
    return ServerRefused(INVALID_PARAMS, f"No prompt is called `{name[:128]}`")


def _prefixed(server: str, item: JsonObject) -> JsonObject:
    return item | {"name": f"{server}{SEPARATOR}{item.get('name')}"}


def _object(raw: bytes, server: str) -> JsonObject:
    try:
        value: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamUnavailable(f"`{server}` answered with something that is not JSON") from error
    return value if isinstance(value, dict) else {}
