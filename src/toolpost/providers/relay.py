"""Resources, prompts and completions of all plugins and servers: listed together, requested from the one that has them.

Prompts are renamed to `server__prompt`, as tools are, and the `ui://` URIs of apps and `skill://` URIs of skills have the
server's name in front. Other resources keep their URIs, so a read goes to the plugin that has the URI, else to the server that
lists it or has a template for it. An unknown URI is not tried on all of them: what a URI says need not be for every server
to know.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

import anyio
import msgspec

from toolpost.base import META_KEY, Json, JsonObject, event
from toolpost.base.caller import Caller, owner_of
from toolpost.contracts.apps import SCHEME, qualify_uri, split_uri
from toolpost.contracts.errors import LoginRequired, ToolpostError, UpstreamUnavailable
from toolpost.contracts.skills import EXTENSION as SKILLS
from toolpost.contracts.skills import SCHEME as SKILL_SCHEME
from toolpost.contracts.skills import qualify_entry, qualify_skill_uri, split_skill_uri
from toolpost.protocol.era import has_stateless_envelope
from toolpost.protocol.extensions import is_extension_request
from toolpost.protocol.rpc import Resumption
from toolpost.protocol.shape import BadShape, decode
from toolpost.providers.app_pages import adapt_contents
from toolpost.providers.client_meta import select_meta, select_trace
from toolpost.providers.input_required import (
    Fields,
    answer_input_requests,
    is_input_required,
    parse_input_requests,
    write_resumption,
)
from toolpost.providers.plugin_contents import PluginContents
from toolpost.providers.requester import Requester
from toolpost.providers.resource_owners import Account, ResourceOwners
from toolpost.providers.server_provider import ServerProvider
from toolpost.providers.unknown_name import UnknownName
from toolpost.refusals import Refusals
from toolpost.upstreams.lists import ListReader
from toolpost.upstreams.server_requests import ClientChannel, has_client
from toolpost.upstreams.supervisor import Supervisor
from toolpost.upstreams.transport import ServerRefused, UpstreamRequest, encode

_log = logging.getLogger("toolpost.relay")

LIST_LIMIT_S: Final = 20.0
PAGES_LIMIT: Final = 100
SEPARATOR: Final = "__"
SELECTIONS_LIMIT: Final = 32
"""How many selections of servers are cached: callers choose them, so that their number is not bounded otherwise."""

_T = TypeVar("_T")

METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
RESOURCE_NOT_FOUND: Final = -32002
"""In the handshake era; in the stateless one it is `INVALID_PARAMS`."""


RelayProvider = ServerProvider | PluginContents


@dataclass(frozen=True, kw_only=True)
class Subscription:
    server: str
    uri: str
    key: str
    owner: str
    """Whose credentials the instance has; empty where callers share them."""


class Relay:
    """Everything but tools of the plugins and servers of one gateway."""

    def __init__(
        self,
        providers: Mapping[str, RelayProvider],
        *,
        for_everyone: frozenset[str] = frozenset(),
        refusals: Refusals,
    ) -> None:
        """`for_everyone` are plugins that every caller sees; `refusals` notes what is asked for and refused."""
        self.providers = providers
        self.refusals = refusals
        self.for_everyone = for_everyone
        self._without: set[tuple[str, str, str]] = set()
        """Servers, owners of credentials, and methods that the server does not know for them: they are not requested again."""
        self._resource_owners = ResourceOwners()
        self.select = lru_cache(maxsize=SELECTIONS_LIMIT)(self._select)
        """Return a relay for the servers with these names alone."""

    def _select(self, names: frozenset[str]) -> "Relay":
        part = Relay(_SelectedServers(self.providers, names), for_everyone=self.for_everyone, refusals=self.refusals)
        part._resource_owners, part._without = self._resource_owners, self._without
        return part

    @property
    def limit_s(self) -> float:
        """The time limit of a read: the longest that any server has for a call."""
        return max((provider.timeout_s for provider in self.providers.values()), default=LIST_LIMIT_S)

    def select_visible(self, shows: Callable[[str, RelayProvider], bool]) -> "Relay":
        """Return a relay for the servers that are visible alone."""
        names = frozenset(
            name for name, provider in self.providers.items() if shows(name, provider) or name in self.for_everyone
        )
        return self if len(names) == len(self.providers) else self.select(names)

    def forget(self, server: str) -> None:
        """Forget which resources and methods a server has, after it announced a change."""
        self._resource_owners.forget(server)
        self._without -= {known for known in self._without if known[0] == server}

    async def resources(self, requester: Requester) -> list[JsonObject]:
        """List the resources of every server, under their own URIs but for those of apps."""
        listed: list[JsonObject] = []
        for server, items in (await self._ask_all("resources/list", "resources", requester)).items():
            qualified = [self._qualify_item(server, item, "uri") for item in items]
            self._resource_owners.note_uris(
                self._account(server, requester), (str(item.get("uri")) for item in qualified)
            )
            listed += qualified
        return [item for item in listed if not self._is_quarantined(item.get("uri"), requester)]

    async def templates(self, requester: Requester) -> list[JsonObject]:
        """List the resource templates of every server."""
        templates: dict[str, list[str]] = {}

        def note_owner(server: str, item: JsonObject) -> JsonObject:
            listed = self._qualify_item(server, item, "uriTemplate")
            templates.setdefault(server, []).append(str(listed.get("uriTemplate")))
            return listed

        listed = await self._list_all("resources/templates/list", "resourceTemplates", note_owner, requester)
        for server, found in templates.items():
            self._resource_owners.note_templates(self._account(server, requester), found)
        return listed

    async def prompts(self, requester: Requester) -> list[JsonObject]:
        """List the prompts of every server, named `server__prompt`."""
        return await self._list_all("prompts/list", "prompts", self._add_prefix, requester)

    async def read(
        self, uri: str, params: JsonObject, requester: Requester, *, has_own_names: bool = False
    ) -> tuple[str, JsonObject]:
        """Read a resource from the server that listed it, else from the first that has it; returns the server too.

        With `has_own_names` the client knows the tools by their servers' own names, as apps do.
        """
        if (app := await self._find_app(uri, requester)) is None:
            return await self._ask_owner(
                uri, requester, lambda server: self._ask(server, "resources/read", params, requester)
            )
        server, own_uri = app
        if not own_uri.startswith(SCHEME):
            return server, await self._read_skill(server, own_uri, params, requester)
        result = await self._ask(server, "resources/read", params | {"uri": own_uri}, requester)
        if self._is_bare(server):
            return server, result
        return server, adapt_contents(result, server, None if has_own_names else self._list_unusual_names(server))

    async def subscribe(self, uri: str, requester: Requester) -> Subscription:
        """Subscribe to a resource at the server that has it."""
        server, uri = await self._find_app(uri, requester) or ("", uri)

        async def subscribe_at(server: str) -> str:
            if isinstance(self.providers[server], PluginContents):
                return ""  # the plugin itself says when a resource has changed
            with self._add_login_url(server, requester):
                supervisor = await self._find_supervisor(server, requester.caller)
                return await supervisor.subscribe(uri, caller=requester.caller, key=requester.key)

        if server:
            key = await subscribe_at(server)
        else:
            server, key = await self._ask_owner(uri, requester, subscribe_at)
        return Subscription(server=server, uri=uri, key=key, owner=owner_of(requester.caller))

    async def unsubscribe(self, subscription: Subscription) -> None:
        provider = self.providers.get(subscription.server)
        if isinstance(provider, ServerProvider) and provider.by_owner is not None:
            provider = provider.by_owner.find(subscription.owner)
        if isinstance(provider, ServerProvider):
            await provider.supervisor.unsubscribe(subscription.uri, key=subscription.key)

    async def notify_roots_changed(self, requester: Requester) -> None:
        """Announce changed roots of a client to the servers that have asked for them."""
        if requester.client_channel is not None:
            for server in self._servers():
                supervisor = await self._find_supervisor(server, requester.caller)
                await supervisor.notify_roots_changed(
                    requester.client_channel, caller=requester.caller, key=requester.key
                )

    async def call_extension(self, server: str, method: str, params: JsonObject, requester: Requester) -> JsonObject:
        """Send an extension's request to a server."""
        return await self._ask(server, method, params, requester)

    async def notify_server(self, server: str, method: str, fields: bytes, requester: Requester) -> bool:
        """Send a client's notification to a server, if it runs; `fields` is the inside of its `params`."""
        supervisor = await self._find_supervisor(server, requester.caller)
        return await supervisor.notify(method, fields, caller=requester.caller, key=requester.key)

    async def _find_supervisor(self, server: str, caller: Caller) -> Supervisor:
        """Return the supervisor of a server with the credentials that this caller uses."""
        return (await self._find_provider(server, caller)).supervisor

    async def _find_provider(self, server: str, caller: Caller) -> ServerProvider:
        provider = self.providers[server]
        assert isinstance(provider, ServerProvider)
        return provider if provider.by_owner is None else await provider.by_owner.of(owner_of(caller))

    def _servers(self) -> list[str]:
        return [name for name, provider in self.providers.items() if isinstance(provider, ServerProvider)]

    def _owner_for(self, server: str, caller: Caller) -> str:
        """Return whose credentials a caller uses; empty where callers share them."""
        return "" if self.providers[server].by_owner is None else owner_of(caller)

    def _account(self, server: str, requester: Requester) -> Account:
        return Account(server, self._owner_for(server, requester.caller))

    async def _ask_owner(self, uri: str, requester: Requester, act: Callable[[str], Awaitable[_T]]) -> tuple[str, _T]:
        refusal: ServerRefused = make_unknown_resource_error(uri, requester)
        owner = await self.find_owner(uri, requester)
        for server in self._list_guesses() if owner is None else [owner]:
            try:
                return server, await act(server)
            except ServerRefused as refused:
                # Plain from here on: a server was asked, so that there is an audit entry.
                refusal = ServerRefused(refusal.code, refusal.message, refusal.data) if owner is None else refused
        raise refusal

    async def find_owner(self, uri: str, requester: Requester) -> str | None:
        """Return the plugin or server that has a URI; None if nothing says which one has it."""
        if (named := requester.named_server) is not None:
            if named not in self.providers:
                raise UnknownName("server", named, INVALID_PARAMS, f"Unknown server `{named[:128]}`")
            return named
        for plugin, provider in self.providers.items():
            if isinstance(provider, PluginContents) and provider.has_resource(uri):
                return plugin
        accounts = [self._account(server, requester) for server in self._servers()]
        owner = self._resource_owners.find(uri, accounts)
        if owner is None and accounts:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.resources, requester)
                tasks.start_soon(self.templates, requester)
            owner = self._resource_owners.find(uri, accounts)
        return owner

    def _list_guesses(self) -> list[str]:
        """Return the servers to ask for a URI that no server lists: those that are set so, or the only one there is."""
        servers = self._servers()
        if len(servers) == 1:
            return servers
        providers = ((name, self.providers[name]) for name in servers)
        return [name for name, one in providers if isinstance(one, ServerProvider) and one.spec.unlisted_resources]

    async def _find_app(self, uri: str, requester: Requester) -> tuple[str, str] | None:
        """Return the provider of an app, or the server of a skill's file, and its own URI for it; None for what is neither, or
        what no server lists.

        Raises `ServerRefused` for a URI without a provider's name that several have.
        """
        if uri.startswith(SKILL_SCHEME):
            named = split_skill_uri(uri)
            if named is not None and isinstance(self.providers.get(named[0]), PluginContents):
                return None
        elif not uri.startswith(SCHEME):
            return None
        else:
            named = split_uri(uri)
        if named is not None and named[0] in self.providers and not self._is_bare(named[0]):
            return named
        listed = {item.get("uri") for item in await self.resources(requester)}
        having = [server for server in self.providers if self.qualify(server, uri) in listed]
        if len(having) > 1:
            names = " or ".join(self.qualify(server, uri)[:200] for server in having[:3])
            raise ServerRefused(INVALID_PARAMS, f"Several servers have the resource {uri[:200]}: read {names}")
        return (having[0], uri) if having else None

    def qualify(self, server: str, uri: str) -> str:
        """Return the URI that clients see for a provider's own."""
        if uri.startswith(SKILL_SCHEME):
            # Those of plugins are made with the plugin's name.
            is_server = isinstance(self.providers.get(server), ServerProvider)
            return qualify_skill_uri(server, uri) if is_server else uri
        return uri if self._is_bare(server) else qualify_uri(server, uri)

    def _qualify_item(self, server: str, item: JsonObject, field: str) -> JsonObject:
        uri = item.get(field)
        return item | {field: self.qualify(server, uri)} if isinstance(uri, str) else item

    async def list_skills(self, requester: Requester) -> dict[str, list[JsonObject]]:
        """List the skills of servers that declare them, under the URIs that clients see; quarantined ones are left out.

        A server that does not answer is left out and logged, as in other lists.
        """
        listed = await self._ask_all("skills/list", "skills", requester)
        found: dict[str, list[JsonObject]] = {}
        for server, entries in listed.items():
            skills = (await self._find_provider(server, requester.caller)).skills
            await skills.take_all(entries)
            found[server] = [qualify_entry(server, entry) for entry in skills.shown]
        return found

    async def get_skill(self, server: str, uri: str, params: JsonObject, requester: Requester) -> JsonObject | None:
        """Return the result for one skill, by the server's own URI; None if the skill is quarantined."""
        result = await self._ask(server, "skills/get", params | {"uri": uri}, requester)
        skills = (await self._find_provider(server, requester.caller)).skills
        entry = await skills.take_one(uri, result.get("skill"))
        return None if entry is None else result | {"skill": qualify_entry(server, entry)}

    async def read_skill_directory(self, server: str, uri: str, params: JsonObject, requester: Requester) -> JsonObject:
        """List a folder of skills at a server that can, by the server's own URI."""
        skills = (await self._find_provider(server, requester.caller)).skills
        if skills.is_quarantined_file(uri):
            raise make_unknown_resource_error(self.qualify(server, uri), requester)
        result = await self._ask(server, "resources/directory/read", params | {"uri": uri}, requester)
        listed = result.get("resources")
        if not isinstance(listed, list):
            raise UpstreamUnavailable(f"`{server}` answered with something that is no list of resources")
        named = [
            item | {"uri": qualify_skill_uri(server, own)}
            for item in listed
            if isinstance(item, dict)
            and isinstance(own := item.get("uri"), str)
            and not skills.is_quarantined_file(own)
        ]
        return result | {"resources": named}

    async def _read_skill(self, server: str, uri: str, params: JsonObject, requester: Requester) -> JsonObject:
        """Read a file of a skill, by the server's own URI; raises `ServerRefused` if the skill is quarantined."""
        provider = await self._find_provider(server, requester.caller)
        if provider.skills.has_to_be_listed and SKILLS in provider.profile.extensions.get("extensions", {}):
            await self.select(frozenset({server})).list_skills(requester)
        if provider.skills.is_quarantined_file(uri):
            raise make_unknown_resource_error(self.qualify(server, uri), requester)
        result = await self._ask(server, "resources/read", params | {"uri": uri}, requester)
        provider.skills.check_read(uri, result)
        contents = result.get("contents")
        if not isinstance(contents, list):
            return result
        named = [
            item | {"uri": qualify_skill_uri(server, uri)}
            if isinstance(item, dict) and item.get("uri") == uri
            else self._qualify_item(server, item, "uri")
            if isinstance(item, dict)
            else item
            for item in contents
        ]
        return result | {"contents": named}

    def _is_quarantined(self, uri: Json, requester: Requester) -> bool:
        """Whether a listed URI is that of a file of a quarantined skill."""
        named = split_skill_uri(uri) if isinstance(uri, str) else None
        provider = self.providers.get(named[0]) if named is not None else None
        if named is None or not isinstance(provider, ServerProvider):
            return False
        own = provider.by_owner.find(owner_of(requester.caller)) if provider.by_owner is not None else provider
        return own is not None and own.skills.is_quarantined_file(named[1])

    def _is_bare(self, server: str) -> bool:
        provider = self.providers.get(server)
        return isinstance(provider, PluginContents) and provider.is_bare

    def _list_unusual_names(self, server: str) -> dict[str, str]:
        """Return the listed names of tools for which putting the server's name in front would not do, by their own names."""
        provider, prefix = self.providers[server], f"{server}{SEPARATOR}"
        if isinstance(provider, PluginContents):
            return {}
        names = {tool.contract.terms.name: str(tool.contract.name) for tool in provider.tools.values()}
        return {own: name for own, name in names.items() if name != f"{prefix}{own}" or own.startswith(prefix)}

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
        if (app := await self._find_app(str(reference.get("uri")), requester)) is not None:
            return await self._ask(
                app[0], "completion/complete", params | {"ref": reference | {"uri": app[1]}}, requester
            )
        _, completed = await self._ask_owner(
            str(reference.get("uri")),
            requester,
            lambda server: self._ask(server, "completion/complete", params, requester),
        )
        return completed

    def _add_prefix(self, server: str, item: JsonObject) -> JsonObject:
        return item if self._is_bare(server) else item | {"name": f"{server}{SEPARATOR}{item.get('name')}"}

    def _split(self, name: str) -> tuple[str, str]:
        bare = [one for one in self.providers.values() if isinstance(one, PluginContents) and one.is_bare]
        if bare:
            # An unknown prompt is refused by any of them, with the nearest name that it has.
            return next((one for one in bare if name in one.prompt_names), bare[0]).name, name
        server, _, rest = name.partition(SEPARATOR)
        if server not in self.providers or not rest:
            raise make_unknown_prompt_error(name)
        return server, rest

    async def _list_all(
        self, method: str, field: str, convert: Callable[[str, JsonObject], JsonObject], requester: Requester
    ) -> list[JsonObject]:
        """List the items of all servers, in the order of the servers."""
        # Not in the order of arrival: the first server with a URI owns it, which must not depend on which is faster.
        found = await self._ask_all(method, field, requester)
        return [convert(server, item) for server, items in found.items() for item in items]

    async def _ask_all(self, method: str, field: str, requester: Requester) -> dict[str, list[JsonObject]]:
        """List the items of all servers at once, by server, in their order; one that fails is left out and logged."""
        found: dict[str, list[JsonObject]] = {}

        async def ask(server: str) -> None:
            try:
                with anyio.fail_after(LIST_LIMIT_S):
                    found[server] = await self._list_server(server, method, field, requester)
            except (ServerRefused, ToolpostError, TimeoutError) as error:
                if not isinstance(error, ServerRefused):
                    self._note_missing(server, method, requester)
                event(_log, logging.INFO, "server left out of a list", server=server, method=method, reason=str(error))

        async with anyio.create_task_group() as tasks:
            for server in self.providers:
                if (server, self._owner_for(server, requester.caller), method) not in self._without:
                    tasks.start_soon(ask, server)
        return {server: found[server] for server in self.providers if server in found}

    def _note_missing(self, server: str, method: str, requester: Requester) -> None:
        provider = self.providers.get(server)
        if isinstance(provider, ServerProvider) and provider.by_owner is not None:
            provider = provider.by_owner.find(owner_of(requester.caller))
        if isinstance(provider, ServerProvider) and method != "skills/list":
            provider.note_missing(method)

    async def _list_server(self, server: str, method: str, field: str, requester: Requester) -> list[JsonObject]:
        provider = self.providers[server]
        if isinstance(provider, PluginContents):
            items: list[JsonObject] = (await provider.answer(method, {}, requester))[field]
            return items
        listed = ListReader(server, field)
        encoded = b""
        for _ in range(PAGES_LIMIT):
            cursor = await listed.take(await self._request(server, method, encoded, {}, requester))
            if cursor is None:
                return listed.items
            encoded = b'"cursor":%b' % encode(cursor)
        raise UpstreamUnavailable(f"`{server}` has a list of more than {PAGES_LIMIT} pages")

    async def _ask(self, server: str, method: str, params: JsonObject, requester: Requester) -> JsonObject:
        provider = self.providers[server]
        if isinstance(provider, PluginContents):
            return await provider.answer(method, params, requester)
        encoded = encode({key: value for key, value in params.items() if key != "_meta"})[1:-1]
        raw = await self._request(server, method, encoded, params, requester)
        if b'"input_required"' in raw and is_input_required(fields := _parse_fields(raw, server)):
            raw = encode(await self._answer_input_required(server, method, encoded, params, requester, fields))
        return _parse_object(raw, server)

    async def _request(
        self, server: str, method: str, encoded: bytes, params: JsonObject, requester: Requester
    ) -> bytes:
        is_extension = is_extension_request(method)
        name = None if is_extension else params.get("uri") or params.get("name")
        # Before the request: a reload may remove the server while it is in flight.
        owner = self._owner_for(server, requester.caller)
        try:
            with self._add_login_url(server, requester):
                supervisor = await self._find_supervisor(server, requester.caller)
                request = UpstreamRequest(
                    method,
                    encoded,
                    # A list goes to all servers: what a client says to one need not be for every other to know.
                    meta=select_trace(requester.meta)
                    if method.endswith("/list")
                    else select_meta(requester.meta, supervisor.spec),
                    name=name if isinstance(name, str) else None,
                    client_channel=self._channel_of(server, requester) if has_client(method) else None,
                    caller=requester.caller,
                )
                return await supervisor.request(request, key=requester.key)
        except ServerRefused as refused:
            # Clients choose the methods of extensions, which may be any number.
            if refused.code == METHOD_NOT_FOUND and not is_extension:
                self._without.add((server, owner, method))
            raise

    @contextmanager
    def _add_login_url(self, server: str, requester: Requester) -> Iterator[None]:
        try:
            yield
        except LoginRequired as required:
            provider = self.providers[server]
            assert isinstance(provider, ServerProvider)
            raise provider.add_login_url(required, requester.caller) from required

    def _channel_of(self, server: str, requester: Requester) -> ClientChannel | None:
        provider = self.providers[server]
        assert isinstance(provider, ServerProvider)
        return provider.channel_of(requester.client_channel, requester.caller)

    async def _answer_input_required(
        self, server: str, method: str, encoded: bytes, params: JsonObject, requester: Requester, fields: Fields
    ) -> Fields:
        """Answer the requests in a result, unless the client takes such results itself."""
        client_channel = self._channel_of(server, requester)
        parse_input_requests(fields, client_channel, server)
        if client_channel is None or client_channel.takes_input_required:
            return fields

        async def retry(resumption: Resumption) -> Fields:
            # An extension's request may have no parameters, which those of a resumption would follow after a comma.
            again = encoded + write_resumption(resumption) if encoded else write_resumption(resumption)[1:]
            return _parse_fields(await self._request(server, method, again, params, requester), server)

        return await answer_input_requests(fields, client_channel, server, retry)


class AllProviders(Mapping[str, RelayProvider]):
    """A live view of the plugins that offer more than tools, and of all servers."""

    def __init__(
        self, plugins: Callable[[], Mapping[str, PluginContents]], servers: Mapping[str, ServerProvider]
    ) -> None:
        self._plugins = plugins
        self._servers = servers

    def __getitem__(self, name: str) -> RelayProvider:
        return self._plugins().get(name) or self._servers[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._plugins(), *self._servers))

    def __len__(self) -> int:
        return len(self._plugins()) + len(self._servers)


def capabilities_of(provider: RelayProvider) -> JsonObject | None:
    """Return what a plugin or server offers besides tools; None for a server that has not been started yet."""
    return provider.capabilities if isinstance(provider, PluginContents) else provider.supervisor.capabilities


class _SelectedServers(Mapping[str, RelayProvider]):
    """A live view of the servers with these names."""

    def __init__(self, providers: Mapping[str, RelayProvider], names: frozenset[str]) -> None:
        self._all = providers
        self._names = names

    def __getitem__(self, name: str) -> RelayProvider:
        if name not in self._names:
            raise KeyError(name)
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._all if name in self._names)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def make_unknown_resource_error(uri: str, requester: Requester) -> UnknownName:
    """Make the error for a URI that no server lists, with the code of the client's era."""
    code = INVALID_PARAMS if has_stateless_envelope(requester.meta) else RESOURCE_NOT_FOUND
    message = f"No server lists the resource {uri[:200]}, nor a template for it"
    hint = f"list what there is; a server that does not list all of its own is named in _meta: `server` in {META_KEY}"
    return UnknownName("resource", uri, code, message, {"uri": uri[:200], "hint": hint})


def make_unknown_prompt_error(name: str) -> UnknownName:
    """Make the error for a prompt that does not exist or is not visible: it must not tell which."""
    return UnknownName("prompt", name, INVALID_PARAMS, f"Unknown prompt `{name[:128]}`")


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
