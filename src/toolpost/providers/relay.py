"""Resources, prompts and completions of all servers: listed together, and requested from the server that has them.

Prompts are renamed to `server__prompt`, as tools are. Resources keep their URIs, so a read goes to the server that listed the
URI, or to each in turn if none did (a URI of a template).
"""

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
"""How many selections of servers are cached: callers choose them, so that their number is not bounded otherwise."""

_T = TypeVar("_T")

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602


@dataclass(frozen=True, kw_only=True)
class Requester:
    """The caller of a request, and its path back to the client."""

    caller: Caller
    meta: JsonObject = field(default_factory=dict)
    client_channel: ClientChannel | None = None
    """Takes requests of the server; None if the client takes none."""

    @property
    def key(self) -> str:
        """The key of the instance, for servers with one instance per session."""
        return routing_key(self.caller, self.meta)


@dataclass(frozen=True, kw_only=True)
class Subscription:
    server: str
    uri: str
    key: str


class Relay:
    """Everything but tools of the servers behind one gateway."""

    def __init__(self, providers: Mapping[str, ServerProvider]) -> None:
        self.providers = providers
        self._without: set[tuple[str, str]] = set()
        """Servers and methods that they do not know, which are not requested again."""
        self._owner_of: dict[str, str] = {}
        """The server that listed a URI."""
        self.select = lru_cache(maxsize=SELECTIONS_LIMIT)(self._select)
        """Return a relay for the servers with these names alone."""

    def _select(self, names: frozenset[str]) -> "Relay":
        part = Relay(_SelectedServers(self.providers, names))
        part._owner_of, part._without = self._owner_of, self._without
        return part

    @property
    def limit_s(self) -> float:
        """The time limit of a read: the longest that any server has for a call."""
        return max((provider.timeout_s for provider in self.providers.values()), default=LIST_LIMIT_S)

    def select_visible(self, shows: Callable[[str, ServerProvider], bool]) -> "Relay":
        """Return a relay for the servers that are visible alone."""
        names = frozenset(name for name, provider in self.providers.items() if shows(name, provider))
        return self if len(names) == len(self.providers) else self.select(names)

    def forget(self, server: str) -> None:
        """Forget which resources and methods a server has, after it announced a change."""
        for uri in [uri for uri, owner in self._owner_of.items() if owner == server]:
            del self._owner_of[uri]
        self._without -= {(known, method) for known, method in self._without if known == server}

    async def resources(self, requester: Requester) -> list[JsonObject]:
        """List the resources of every server, under their own URIs."""
        owners: dict[str, str] = {}

        def note_owner(server: str, item: JsonObject) -> JsonObject:
            owners.setdefault(str(item.get("uri")), server)
            return item

        listed = await self._list_all("resources/list", "resources", note_owner, requester)
        self._owner_of |= owners
        return listed

    async def templates(self, requester: Requester) -> list[JsonObject]:
        """List the resource templates of every server."""
        return await self._list_all(
            "resources/templates/list", "resourceTemplates", lambda _server, item: item, requester
        )

    async def prompts(self, requester: Requester) -> list[JsonObject]:
        """List the prompts of every server, named `server__prompt`."""
        return await self._list_all("prompts/list", "prompts", _add_prefix, requester)

    async def read(self, uri: str, params: JsonObject, requester: Requester) -> tuple[str, JsonObject]:
        """Read a resource from the server that listed it, else from the first that has it; returns the server too."""
        return await self._ask_owner(
            uri, requester, lambda server: self._ask(server, "resources/read", params, requester)
        )

    async def subscribe(self, uri: str, requester: Requester) -> Subscription:
        """Subscribe to a resource at the server that has it."""

        def subscribe_at(server: str) -> Awaitable[str]:
            return self.providers[server].supervisor.subscribe(uri, caller=requester.caller, key=requester.key)

        server, key = await self._ask_owner(uri, requester, subscribe_at)
        return Subscription(server=server, uri=uri, key=key)

    async def unsubscribe(self, subscription: Subscription) -> None:
        if (provider := self.providers.get(subscription.server)) is not None:
            await provider.supervisor.unsubscribe(subscription.uri, key=subscription.key)

    async def notify_roots_changed(self, requester: Requester) -> None:
        """Announce changed roots of a client to the servers that have asked for them."""
        if requester.client_channel is not None:
            for provider in tuple(self.providers.values()):
                await provider.supervisor.notify_roots_changed(
                    requester.client_channel, caller=requester.caller, key=requester.key
                )

    async def _ask_owner(self, uri: str, requester: Requester, act: Callable[[str], Awaitable[_T]]) -> tuple[str, _T]:
        if uri not in self._owner_of:
            await self.resources(requester)
        owner = self._owner_of.get(uri)
        candidates = [owner] if owner in self.providers else list(self.providers)
        refusal = ServerRefused(INVALID_PARAMS, f"No server has the resource {uri[:200]}", {"uri": uri[:200]})
        for server in candidates:
            try:
                return str(server), await act(str(server))
            except ServerRefused as refused:
                refusal = refused if owner in self.providers else refusal
        raise refusal

    async def prompt(self, name: str, params: JsonObject, requester: Requester) -> tuple[str, JsonObject]:
        """Get a prompt from its server; returns the server too."""
        server, prompt = self._split(name)
        return server, await self._ask(server, "prompts/get", params | {"name": prompt}, requester)

    async def complete(self, params: JsonObject, requester: Requester) -> JsonObject:
        """Complete an argument of a prompt, or of a resource template, at the server that has it."""
        reference = params.get("ref") or {}
        if reference.get("type") == "ref/prompt":
            server, prompt = self._split(str(reference.get("name")))
            return await self._ask(
                server, "completion/complete", params | {"ref": reference | {"name": prompt}}, requester
            )
        for server in self.providers:
            try:
                return await self._ask(server, "completion/complete", params, requester)
            except ServerRefused as refused:
                event(_log, logging.DEBUG, "completion refused", server=server, reason=refused.message)
        raise ServerRefused(INVALID_PARAMS, "No server offers completions for this")

    def _split(self, name: str) -> tuple[str, str]:
        server, _, rest = name.partition(SEPARATOR)
        if server not in self.providers or not rest:
            raise make_unknown_prompt_error(name)
        return server, rest

    async def _list_all(
        self, method: str, field: str, convert: Callable[[str, JsonObject], JsonObject], requester: Requester
    ) -> list[JsonObject]:
        """List the items of all servers at once, in the order of the servers; one that fails is left out and logged."""
        found: dict[str, list[JsonObject]] = {}

        async def ask(server: str) -> None:
            try:
                with anyio.fail_after(LIST_LIMIT_S):
                    found[server] = await self._list_server(server, method, field, requester)
            except (ServerRefused, ToolpostError, TimeoutError) as error:
                event(_log, logging.INFO, "server left out of a list", server=server, method=method, reason=str(error))

        async with anyio.create_task_group() as tasks:
            for server in self.providers:
                if (server, method) not in self._without:
                    tasks.start_soon(ask, server)
        # Not in the order of arrival: the first server with a URI owns it, which must not depend on which is faster.
        return [convert(server, item) for server in self.providers for item in found.get(server, ())]

    async def _list_server(self, server: str, method: str, field: str, requester: Requester) -> list[JsonObject]:
        listed = ListReader(server, field)
        encoded = b""
        for _ in range(PAGES_LIMIT):
            cursor = await listed.take(await self._request(server, method, encoded, {}, requester))
            if cursor is None:
                return listed.items
            encoded = b'"cursor":%b' % encode(cursor)
        raise UpstreamUnavailable(f"`{server}` has a list of more than {PAGES_LIMIT} pages")

    async def _ask(self, server: str, method: str, params: JsonObject, requester: Requester) -> JsonObject:
        encoded = encode({key: value for key, value in params.items() if key != "_meta"})[1:-1]
        raw = await self._request(server, method, encoded, params, requester)
        if b'"input_required"' in raw and is_input_required(fields := _parse_fields(raw, server)):
            raw = encode(await self._answer_input_required(server, method, encoded, params, requester, fields))
        return _parse_object(raw, server)

    async def _request(
        self, server: str, method: str, encoded: bytes, params: JsonObject, requester: Requester
    ) -> bytes:
        name = params.get("uri") or params.get("name")
        try:
            return await self.providers[server].supervisor.request(
                method,
                encoded,
                key=requester.key,
                name=name if isinstance(name, str) else None,
                client_channel=requester.client_channel if method in CALLBACK_METHODS else None,
                caller=requester.caller,
            )
        except ServerRefused as refused:
            if refused.code == METHOD_NOT_FOUND:
                self._without.add((server, method))
            raise

    async def _answer_input_required(
        self, server: str, method: str, encoded: bytes, params: JsonObject, requester: Requester, fields: Fields
    ) -> Fields:
        """Answer the requests in a result, unless the client takes such results itself."""
        client_channel = requester.client_channel
        parse_input_requests(fields, client_channel, server)
        if client_channel is None or client_channel.takes_input_required:
            return fields

        async def retry(resumption: Resumption) -> Fields:
            again = encoded + write_resumption(resumption)
            return _parse_fields(await self._request(server, method, again, params, requester), server)

        return await answer_input_requests(fields, client_channel, server, retry)


class _SelectedServers(Mapping[str, ServerProvider]):
    """A live view of the servers with these names."""

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
    """Make the error for a prompt that does not exist or is not visible: it must not tell which."""
    return ServerRefused(INVALID_PARAMS, f"Unknown prompt `{name[:128]}`")


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
