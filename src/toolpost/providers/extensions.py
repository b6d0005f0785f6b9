"""Extensions of all servers: their merged declarations, and the target server of a method.

MCP does not say which extension a method belongs to, nor has a gateway's client any other way to say which server it means. So
the server is chosen, among those that the caller sees and that declare an extension, by the first of these that leaves one:

1. `server` under `dev.toolpost/meta` in the request's `_meta`
2. the name of the method, compared with those of the extensions (`match_extension`)
3. a `uri` in the parameters that a server lists, or a `name` that begins with `server__`
4. the only server there is

A method is never tried on several servers: it may have effects.
"""

from collections.abc import Callable, Mapping
from typing import Final

from toolpost.base.ids import META_KEY, JsonObject, ToolName
from toolpost.protocol.extensions import declares_extensions, match_extension, merge_extensions, select_extensions
from toolpost.protocol.rpc import INVALID_PARAMS, METHOD_NOT_FOUND
from toolpost.providers.client_meta import select_meta
from toolpost.providers.relay import SEPARATOR, Relay, RelayProvider
from toolpost.providers.requester import Requester
from toolpost.providers.server_provider import ServerProvider
from toolpost.providers.tool import ProvidedTool
from toolpost.providers.unknown_name import UnknownName
from toolpost.upstreams.transport import ServerRefused, encode

_HINT: Final = f"name one of them in the request's _meta: `server` in {META_KEY}"


def find_declared(provider: RelayProvider, owner: str) -> JsonObject:
    """Return the extensions that a plugin or server declares, also while it is down; empty if they do not pass."""
    if not isinstance(provider, ServerProvider):
        return select_extensions(provider.capabilities)
    if not provider.spec.extensions:
        return {}
    own = provider.by_owner.find(owner) if provider.by_owner is not None else None
    return (own or provider).profile.extensions


class Extensions:
    """The extensions of the servers that one caller sees."""

    def __init__(self, relay: Relay, owner: str, shows: Callable[[str, RelayProvider], bool]) -> None:
        """`relay` has all servers; `owner` is whose credentials the caller uses, `shows` says which servers it sees."""
        self._relay = relay.select_visible(shows)
        self._owner = owner

    @property
    def declared(self) -> dict[str, JsonObject]:
        """What each plugin and server declares, in their order; those that declare nothing are left out."""
        found = {name: find_declared(provider, self._owner) for name, provider in self._relay.providers.items()}
        return {name: declared for name, declared in found.items() if declares_extensions(declared)}

    @property
    def instructions(self) -> dict[str, str]:
        """The instructions of each server that has some which are not quarantined."""
        found: dict[str, str] = {}
        for name, provider in self._relay.providers.items():
            if isinstance(provider, ServerProvider):
                own = provider.by_owner.find(self._owner) if provider.by_owner is not None else None
                found[name] = (own or provider).instructions.shown
        return {name: text for name, text in found.items() if text}

    @property
    def merged(self) -> JsonObject:
        """What all of them declare together."""
        return merge_extensions(self.declared.values())

    @property
    def servers(self) -> dict[str, list[str]]:
        """The servers that declare an extension, by its identifier or name."""
        by_name: dict[str, list[str]] = {}
        for server, declared in self.declared.items():
            for name in {name: None for extensions in declared.values() for name in extensions}:
                by_name.setdefault(name, []).append(server)
        return by_name

    async def call(self, server: ServerProvider, method: str, params: JsonObject, requester: Requester) -> JsonObject:
        """Send a request to the server that `choose` returned for it."""
        params = _restore_name(server, params)
        if requester.enter is not None:
            requester.enter(server.name)
        return await self._relay.call_extension(server.name, method, params, requester)

    async def notify(self, server: ServerProvider, method: str, params: JsonObject, requester: Requester) -> bool:
        """Send a notification to the server that `choose` returned for it; False if the server does not run."""
        params, meta = _restore_name(server, params), select_meta(requester.meta, server.spec)
        fields = encode(params | ({"_meta": meta} if meta else {}))[1:-1]
        return await self._relay.notify_server(server.name, method, fields, requester)

    async def choose(self, method: str, params: JsonObject, requester: Requester) -> ServerProvider:
        """Return the server that a request or notification is for.

        Raises `UnknownName` if there is none, `ServerRefused` if there are several.
        """
        providers = self._relay.providers
        servers = {name: one for name in self.declared if isinstance(one := providers.get(name), ServerProvider)}
        if (named := requester.named_server) is not None:
            if named not in providers:
                message = f"Unknown server `{named[:128]}`"
                raise UnknownName("server", named, INVALID_PARAMS, message, {"servers": [*servers]})
            if named not in servers:
                message = f"The server `{named}` declares no extension"
                raise UnknownName("method", method, METHOD_NOT_FOUND, message, method)
            return servers[named]
        if not servers:
            raise UnknownName("method", method, METHOD_NOT_FOUND, "Method not found", method)
        ranks = {name: match_extension(method, declared) for name, declared in self.declared.items() if name in servers}
        best = max(ranks.values())
        candidates = {name: servers[name] for name, rank in ranks.items() if rank == best}
        if len(candidates) > 1:
            candidates = await self._narrow(candidates, params, requester)
        if len(candidates) > 1:
            code = INVALID_PARAMS if best else METHOD_NOT_FOUND
            message = f"{method} may be for any of several servers: {', '.join(candidates)}"
            raise ServerRefused(code, message, {"method": method, "servers": [*candidates], "hint": _HINT})
        return next(iter(candidates.values()))

    async def _narrow(
        self, candidates: Mapping[str, ServerProvider], params: JsonObject, requester: Requester
    ) -> dict[str, ServerProvider]:
        """Return the one candidate that a URI or name in the parameters is of; all of them if they say nothing."""
        uri, name = params.get("uri"), params.get("name")
        owner = None
        if isinstance(name, str) and SEPARATOR in name:
            owner = name.partition(SEPARATOR)[0]
        if owner not in candidates and isinstance(uri, str):
            owner = await self._relay.find_owner(uri, requester)
        return {owner: candidates[owner]} if owner is not None and owner in candidates else dict(candidates)


def find_named_tool(server: ServerProvider, params: JsonObject) -> ProvidedTool | None:
    """Return the tool that the `name` in a method's parameters names, by the gateway's name or by the server's own."""
    name = params.get("name")
    if not isinstance(name, str):
        return None
    listed = server.tools.get(ToolName(name))
    return listed or next((tool for tool in server.tools.values() if tool.contract.terms.name == name), None)


def _restore_name(server: ServerProvider, params: JsonObject) -> JsonObject:
    """Write a `name` as the server knows it: without the prefix that the gateway lists it under."""
    name, prefix = params.get("name"), f"{server.name}{SEPARATOR}"
    if not isinstance(name, str) or not name.startswith(prefix):
        return params
    tool = server.tools.get(ToolName(name))
    return params | {"name": name.removeprefix(prefix) if tool is None else tool.contract.terms.name}
