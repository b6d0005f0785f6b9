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
from toolpost.providers.input_required import (
    Fields,
    answer_input_requests,
    is_input_required,
    parse_input_requests,
    write_resumption,
)
from toolpost.providers.servers import ServerProvider, routing_key
from toolpost.upstreams.lists import ListReader
from toolpost.upstreams.server_requests import CALLBACK_METHODS, ClientChannel
from toolpost.upstreams.transport import ServerRefused, encode

_log = logging.getLogger("toolpost.relay")

LIST_LIMIT_S: Final = 20.0
PAGES_LIMIT: Final = 100
SEPARATOR: Final = "__"
SELECTIONS_LIMIT: Final = 32
"""How many parts of all servers are kept apart: callers choose them."""

_T = TypeVar("_T")

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602


@dataclass(frozen=True, kw_only=True)
class Requester:
    """Who asks: the instance of a server is theirs, where each has one of their own."""

    caller: Caller
    meta: JsonObject = field(default_factory=dict)
    client_channel: ClientChannel | None = None
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

    def __init__(self, providers: Mapping[str, ServerProvider]) -> None:
        self.providers = providers
        self._without: set[tuple[str, str]] = set()
        """Servers that do not know a method: they are not asked again."""
        self._owner_of: dict[str, str] = {}
        """Which server listed a URI."""
        self.among = lru_cache(maxsize=SELECTIONS_LIMIT)(self._select)
        """Return the same for the servers of these names alone: the others do not exist for it."""

    def _select(self, names: frozenset[str]) -> "Relay":
        part = Relay(_SelectedServers(self.providers, names))
        part._owner_of, part._without = self._owner_of, self._without
        return part

    @property
    def limit_s(self) -> float:
        """How long a read may take: as long as a call of the most patient server."""
        return max((provider.timeout_s for provider in self.providers.values()), default=LIST_LIMIT_S)

    def select_visible(self, shows: Callable[[str, ServerProvider], bool]) -> "Relay":
        """Return the same for the servers that are shown alone."""
        names = frozenset(name for name, provider in self.providers.items() if shows(name, provider))
        return self if len(names) == len(self.providers) else self.among(names)

    def forget(self, server: str) -> None:
        """Take note that a server has other resources now."""
        for uri in [uri for uri, owner in self._owner_of.items() if owner == server]:
            del self._owner_of[uri]
        self._without -= {(known, method) for known, method in self._without if known == server}

    async def resources(self, asker: Requester) -> list[JsonObject]:
        """List the resources of every server, under their own URIs."""
        owners: dict[str, str] = {}

        def note_owner(server: str, item: JsonObject) -> JsonObject:
            owners.setdefault(str(item.get("uri")), server)
            return item

        listed = await self._list_all("resources/list", "resources", note_owner, asker)
        self._owner_of |= owners
        return listed

    async def templates(self, asker: Requester) -> list[JsonObject]:
        """List the resource templates of every server."""
        return await self._list_all("resources/templates/list", "resourceTemplates", lambda _server, item: item, asker)

    async def prompts(self, asker: Requester) -> list[JsonObject]:
        """List the prompts of every server, named `server__prompt`."""
        return await self._list_all("prompts/list", "prompts", _add_prefix, asker)

    async def read(self, uri: str, params: JsonObject, asker: Requester) -> tuple[str, JsonObject]:
        """Read a resource from the server that listed it, else from the first that knows it; says which that was."""
        return await self._ask_owner(uri, asker, lambda server: self._ask(server, "resources/read", params, asker))

    async def subscribe(self, uri: str, asker: Requester) -> Subscription:
        """Follow a resource at the server that has it."""
        follow = lambda server: self.providers[server].supervisor.subscribe(uri, caller=asker.caller, key=asker.key)  # noqa: E731
        server, key = await self._ask_owner(uri, asker, follow)
        return Subscription(server=server, uri=uri, key=key)

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Follow a resource no more."""
        if (provider := self.providers.get(subscription.server)) is not None:
            await provider.supervisor.unsubscribe(subscription.uri, key=subscription.key)

    async def notify_roots_changed(self, asker: Requester) -> None:
        """Tell the servers that know of a client's folders that these have changed."""
        if asker.client_channel is not None:
            for provider in tuple(self.providers.values()):
                await provider.supervisor.notify_roots_changed(asker.client_channel, caller=asker.caller, key=asker.key)

    async def _ask_owner(self, uri: str, asker: Requester, act: Callable[[str], Awaitable[_T]]) -> tuple[str, _T]:
        if uri not in self._owner_of:
            await self.resources(asker)
        owner = self._owner_of.get(uri)
        asked = [owner] if owner in self.providers else list(self.providers)
        refusal = ServerRefused(INVALID_PARAMS, f"No server has the resource {uri[:200]}", {"uri": uri[:200]})
        for server in asked:
            try:
                return str(server), await act(str(server))
            except ServerRefused as refused:
                refusal = refused if owner in self.providers else refusal
        raise refusal

    async def prompt(self, name: str, params: JsonObject, asker: Requester) -> tuple[str, JsonObject]:
        """Get a prompt from its server; says which that was."""
        server, prompt = self._split(name)
        return server, await self._ask(server, "prompts/get", params | {"name": prompt}, asker)

    async def complete(self, params: JsonObject, asker: Requester) -> JsonObject:
        """Complete an argument of a prompt, or of a resource template, at the server that has it."""
        reference = params.get("ref") or {}
        if reference.get("type") == "ref/prompt":
            server, prompt = self._split(str(reference.get("name")))
            return await self._ask(server, "completion/complete", params | {"ref": reference | {"name": prompt}}, asker)
        for server in self.providers:
            try:
                return await self._ask(server, "completion/complete", params, asker)
            except ServerRefused as refused:
                event(_log, logging.DEBUG, "completion refused", server=server, reason=refused.message)
        raise ServerRefused(INVALID_PARAMS, "No server completes this")

    def _split(self, name: str) -> tuple[str, str]:
        server, _, rest = name.partition(SEPARATOR)
        if server not in self.providers or not rest:
            raise make_unknown_prompt_error(name)
        return server, rest

    async def _list_all(
        self, method: str, field: str, shown: Callable[[str, JsonObject], JsonObject], asker: Requester
    ) -> list[JsonObject]:
        """Ask every server at once; one that fails is left out and named in the log."""
        found: dict[str, list[JsonObject]] = {}

        async def ask(server: str) -> None:
            try:
                with anyio.fail_after(LIST_LIMIT_S):
                    found[server] = await self._list_server(server, method, field, asker)
            except (ServerRefused, ToolpostError, TimeoutError) as error:
                event(_log, logging.INFO, "server left out of a list", server=server, method=method, reason=str(error))

        async with anyio.create_task_group() as tasks:
            for server in self.providers:
                if (server, method) not in self._without:
                    tasks.start_soon(ask, server)
        # In the order in which the servers are configured: one that is quicker has no better right to a URI.
        return [shown(server, item) for server in self.providers for item in found.get(server, ())]

    async def _list_server(self, server: str, method: str, field: str, asker: Requester) -> list[JsonObject]:
        listed = ListReader(server, field)
        wish = b""
        for _ in range(PAGES_LIMIT):
            cursor = await listed.take(await self._request(server, method, wish, {}, asker))
            if cursor is None:
                return listed.items
            wish = b'"cursor":%b' % encode(cursor)
        raise UpstreamUnavailable(f"`{server}` has a list without an end")

    async def _ask(self, server: str, method: str, params: JsonObject, asker: Requester) -> JsonObject:
        wish = encode({key: value for key, value in params.items() if key != "_meta"})[1:-1]
        raw = await self._request(server, method, wish, params, asker)
        if b'"input_required"' in raw and is_input_required(fields := _parse_fields(raw, server)):
            raw = encode(await self._answer_input_required(server, method, wish, params, asker, fields))
        return _parse_object(raw, server)

    async def _request(self, server: str, method: str, wish: bytes, params: JsonObject, asker: Requester) -> bytes:
        name = params.get("uri") or params.get("name")
        try:
            return await self.providers[server].supervisor.request(
                method,
                wish,
                key=asker.key,
                name=name if isinstance(name, str) else None,
                client_channel=asker.client_channel if method in CALLBACK_METHODS else None,
                caller=asker.caller,
            )
        except ServerRefused as refused:
            if refused.code == METHOD_NOT_FOUND:
                self._without.add((server, method))
            raise

    async def _answer_input_required(
        self, server: str, method: str, wish: bytes, params: JsonObject, asker: Requester, fields: Fields
    ) -> Fields:
        """Get a server what it asks for; a client of its own era is asked by its own result."""
        client_channel = asker.client_channel
        parse_input_requests(fields, client_channel, server)
        if client_channel is None or client_channel.takes_input_required:
            return fields

        async def retry(resumption: Resumption) -> Fields:
            again = wish + write_resumption(resumption)
            return _parse_fields(await self._request(server, method, again, params, asker), server)

        return await answer_input_requests(fields, client_channel, server, retry)


class _SelectedServers(Mapping[str, ServerProvider]):
    """Some of the servers, whichever they are at the moment."""

    def __init__(self, providers: Mapping[str, ServerProvider], names: frozenset[str]) -> None:
        self._all = providers
        self._names = names

    def __getitem__(self, name: str) -> ServerProvider:
        if name not in self._names:
            raise KeyError(name)
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._all if name in self._names)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def make_unknown_prompt_error(name: str) -> ServerRefused:
    """Say that there is no such prompt, or none for whoever asks: they are not told which."""
    return ServerRefused(INVALID_PARAMS, f"No prompt is called `{name[:128]}`")


def _add_prefix(server: str, item: JsonObject) -> JsonObject:
    return item | {"name": f"{server}{SEPARATOR}{item.get('name')}"}


def _parse_fields(raw: bytes, server: str) -> Fields:
    try:
        return msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamUnavailable(f"`{server}` answered with something that is not JSON") from error


def _parse_object(raw: bytes, server: str) -> JsonObject:
    try:
        value: Any = decode(raw)
    except BadShape as error:
        raise UpstreamUnavailable(f"`{server}` answered with something that {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamUnavailable(f"`{server}` answered with something that is not JSON") from error
    return value if isinstance(value, dict) else {}
