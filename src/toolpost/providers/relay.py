"""What servers have besides tools (resources, prompts, completions): listed together, asked of the one that has them."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeVar

import anyio
import msgspec

from toolpost.base.caller import Caller
from toolpost.base.events import event
from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import ToolpostError, UpstreamUnavailable
from toolpost.protocol.rpc import Resumption
from toolpost.protocol.shape import BadShape, decode
from toolpost.providers.input_required import Fields, check_asking, is_asking, resumption_fields, with_answers
from toolpost.providers.servers import ServerSource, routing_key
from toolpost.upstreams.lists import ListReader
from toolpost.upstreams.server_requests import CALLS, Respondent
from toolpost.upstreams.wire import ServerRefused, encode

_log = logging.getLogger("toolpost.relay")

LIST_LIMIT_S: Final = 20.0
PAGES_LIMIT: Final = 100
SEPARATOR: Final = "__"
PARTS_LIMIT: Final = 32
"""How many parts of all servers are kept apart: callers choose them."""

_T = TypeVar("_T")

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Who asks: the instance of a server is theirs, where each has one of their own."""

    caller: Caller
    meta: JsonObject = field(default_factory=dict)
    respondent: Respondent | None = None
    """Whom the server may ask back."""

    @property
    def key(self) -> str:
        """Whose instance is asked."""
        return routing_key(self.caller, self.meta)


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """A resource that is followed, and where."""

    server: str
    uri: str
    key: str


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
        part = Relay(_Some(self.sources, names))
        part._owner_of, part._without = self._owner_of, self._without
        return part

    @property
    def limit_s(self) -> float:
        """How long a read may take: as long as a call of the most patient server."""
        return max((source.timeout_s for source in self.sources.values()), default=LIST_LIMIT_S)

    def seen_by(self, shows: Callable[[str, ServerSource], bool]) -> "Relay":
        """Return the same for the servers that are shown alone."""
        names = frozenset(name for name, source in self.sources.items() if shows(name, source))
        return self if len(names) == len(self.sources) else self.among(names)

    def forget(self, server: str) -> None:
        """Take note that a server has other resources now."""
        for uri in [uri for uri, owner in self._owner_of.items() if owner == server]:
            del self._owner_of[uri]
        self._without -= {(known, method) for known, method in self._without if known == server}

    async def resources(self, asker: Asker) -> list[JsonObject]:
        """List the resources of every server, under their own URIs."""
        owners: dict[str, str] = {}

        def note_owner(server: str, item: JsonObject) -> JsonObject:
            owners.setdefault(str(item.get("uri")), server)
            return item

        listed = await self._listed("resources/list", "resources", note_owner, asker)
        self._owner_of |= owners
        return listed

    async def templates(self, asker: Asker) -> list[JsonObject]:
        """List the resource templates of every server."""
        return await self._listed("resources/templates/list", "resourceTemplates", lambda _server, item: item, asker)

    async def prompts(self, asker: Asker) -> list[JsonObject]:
        """List the prompts of every server, named `server__prompt`."""
        return await self._listed("prompts/list", "prompts", _prefixed, asker)

    async def read(self, uri: str, params: JsonObject, asker: Asker) -> tuple[str, JsonObject]:
        """Read a resource from the server that listed it, else from the first that knows it; says which that was."""
        return await self._at_owner(uri, asker, lambda server: self._ask(server, "resources/read", params, asker))

    async def subscribe(self, uri: str, asker: Asker) -> Subscription:
        """Follow a resource at the server that has it."""
        follow = lambda server: self.sources[server].supervisor.subscribe(uri, caller=asker.caller, key=asker.key)  # noqa: E731
        server, key = await self._at_owner(uri, asker, follow)
        return Subscription(server=server, uri=uri, key=key)

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Follow a resource no more."""
        if (source := self.sources.get(subscription.server)) is not None:
            await source.supervisor.unsubscribe(subscription.uri, key=subscription.key)

    async def roots_changed(self, asker: Asker) -> None:
        """Tell the servers that know of a client's folders that these have changed."""
        if asker.respondent is not None:
            for source in tuple(self.sources.values()):
                await source.supervisor.roots_changed(asker.respondent, caller=asker.caller, key=asker.key)

    async def _at_owner(self, uri: str, asker: Asker, act: Callable[[str], Awaitable[_T]]) -> tuple[str, _T]:
        if uri not in self._owner_of:
            await self.resources(asker)
        owner = self._owner_of.get(uri)
        asked = [owner] if owner in self.sources else list(self.sources)
        refusal = ServerRefused(INVALID_PARAMS, f"No server has the resource {uri[:200]}", {"uri": uri[:200]})
        for server in asked:
            try:
                return str(server), await act(str(server))
            except ServerRefused as refused:
                refusal = refused if owner in self.sources else refusal
        raise refusal

    async def prompt(self, name: str, params: JsonObject, asker: Asker) -> tuple[str, JsonObject]:
        """Get a prompt from its server; says which that was."""
        server, prompt = self._split(name)
        return server, await self._ask(server, "prompts/get", params | {"name": prompt}, asker)

    async def complete(self, params: JsonObject, asker: Asker) -> JsonObject:
        """Complete an argument of a prompt, or of a resource template, at the server that has it."""
        reference = params.get("ref") or {}
        if reference.get("type") == "ref/prompt":
            server, prompt = self._split(str(reference.get("name")))
            return await self._ask(server, "completion/complete", params | {"ref": reference | {"name": prompt}}, asker)
        for server in self.sources:
            try:
                return await self._ask(server, "completion/complete", params, asker)
            except ServerRefused as refused:
                event(_log, logging.DEBUG, "completion refused", server=server, reason=refused.message)
        raise ServerRefused(INVALID_PARAMS, "No server completes this")

    def _split(self, name: str) -> tuple[str, str]:
        server, _, rest = name.partition(SEPARATOR)
        if server not in self.sources or not rest:
            raise unknown_prompt(name)
        return server, rest

    async def _listed(
        self, method: str, field: str, shown: Callable[[str, JsonObject], JsonObject], asker: Asker
    ) -> list[JsonObject]:
        """Ask every server at once; one that fails is left out and named in the log."""
        found: dict[str, list[JsonObject]] = {}

        async def ask(server: str) -> None:
            try:
                with anyio.fail_after(LIST_LIMIT_S):
                    found[server] = await self._pages(server, method, field, asker)
            except (ServerRefused, ToolpostError, TimeoutError) as error:
                event(_log, logging.INFO, "server left out of a list", server=server, method=method, reason=str(error))

        async with anyio.create_task_group() as tasks:
            for server in self.sources:
                if (server, method) not in self._without:
                    tasks.start_soon(ask, server)
        # In the order in which the servers are configured: one that is quicker has no better right to a URI.
        return [shown(server, item) for server in self.sources for item in found.get(server, ())]

    async def _pages(self, server: str, method: str, field: str, asker: Asker) -> list[JsonObject]:
        listed = ListReader(server, field)
        wish = b""
        for _ in range(PAGES_LIMIT):
            cursor = await listed.take(await self._requested(server, method, wish, {}, asker))
            if cursor is None:
                return listed.items
            wish = b'"cursor":%b' % encode(cursor)
        raise UpstreamUnavailable(f"`{server}` has a list without an end")

    async def _ask(self, server: str, method: str, params: JsonObject, asker: Asker) -> JsonObject:
        wish = encode({key: value for key, value in params.items() if key != "_meta"})[1:-1]
        raw = await self._requested(server, method, wish, params, asker)
        if b'"input_required"' in raw and is_asking(fields := _fields(raw, server)):
            raw = encode(await self._answered(server, method, wish, params, asker, fields))
        return _object(raw, server)

    async def _requested(self, server: str, method: str, wish: bytes, params: JsonObject, asker: Asker) -> bytes:
        name = params.get("uri") or params.get("name")
        try:
            return await self.sources[server].supervisor.request(
                method,
                wish,
                key=asker.key,
                name=name if isinstance(name, str) else None,
                respondent=asker.respondent if method in CALLS else None,
                caller=asker.caller,
            )
        except ServerRefused as refused:
            if refused.code == METHOD_NOT_FOUND:
                self._without.add((server, method))
            raise

    async def _answered(
        self, server: str, method: str, wish: bytes, params: JsonObject, asker: Asker, fields: Fields
    ) -> Fields:
        """Get a server what it asks for; a client of its own era is asked by its own result."""
        respondent = asker.respondent
        check_asking(fields, respondent, server)
        if respondent is None or respondent.takes_rounds:
            return fields

        async def retry(resumption: Resumption) -> Fields:
            again = wish + resumption_fields(resumption)
            return _fields(await self._requested(server, method, again, params, asker), server)

        return await with_answers(fields, respondent, server, retry)


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


def _fields(raw: bytes, server: str) -> Fields:
    try:
        return msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamUnavailable(f"`{server}` answered with something that is not JSON") from error


def _object(raw: bytes, server: str) -> JsonObject:
    try:
        value: Any = decode(raw)
    except BadShape as error:
        raise UpstreamUnavailable(f"`{server}` answered with something that {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamUnavailable(f"`{server}` answered with something that is not JSON") from error
    return value if isinstance(value, dict) else {}
