"""Agent skills of plugins and servers (SEP-2640), as middleware of the SDK's server.

`skills/list` has those of all plugins and servers that the caller sees, in the order of their URIs, page by page; `skills/get`
and `resources/directory/read` go to the one that a URI names. The files of skills are resources, and read as those are.
"""

import binascii
import mimetypes
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError

from toolpost.authoring.skill import Skill
from toolpost.base.caller import Scope, owner_of
from toolpost.base.ids import JsonObject
from toolpost.contracts.skills import DYNAMIC, EXTENSION, SCHEME, attribute, qualify_skill_uri, split_skill_uri
from toolpost.discovery import View
from toolpost.discovery.views import SEPARATOR, tags_of
from toolpost.endpoints.http.paths import read_view
from toolpost.endpoints.listing import SERVER_STAMP, decode_cursor, encode_cursor
from toolpost.endpoints.sdk.handshake import require_initialized
from toolpost.endpoints.sdk.relay import RelayHandlers, is_stateless, make_requester, wrap_handler
from toolpost.endpoints.sdk.request_context import VIEWER
from toolpost.fairness import Shares
from toolpost.protocol.rpc import INVALID_PARAMS
from toolpost.providers.extensions import find_declared
from toolpost.providers.plugin_contents import PluginContents
from toolpost.providers.relay import Relay
from toolpost.providers.requester import Requester
from toolpost.providers.server_provider import ServerProvider
from toolpost.providers.unknown_name import UnknownName
from toolpost.upstreams.transport import ServerRefused

LIST: Final = "skills/list"
GET: Final = "skills/get"
READ_DIRECTORY: Final = "resources/directory/read"
_ANNOUNCING: Final = frozenset({"initialize", "server/discover"})
_HANDLED: Final = frozenset({LIST, GET, READ_DIRECTORY}) | _ANNOUNCING

PAGE_SIZE: Final = 100
"""Skills on a page: an entry has up to 512 files."""

_DIRECTORY: Final = "inode/directory"


class SkillsMiddleware:
    """Answers the three methods where a plugin or server that the caller sees has skills."""

    def __init__(self, relay: Relay, handlers: RelayHandlers, calls: Shares, mode: Scope) -> None:
        """`mode` limits the whole gateway."""
        self._relay = relay
        self._handlers = handlers
        self._mode = mode
        self._list = wrap_handler(relay, calls, self._list_page)
        self._ask_one = wrap_handler(relay, calls, self._ask_owner)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Answer the methods, announce them, and pass everything else on."""
        if ctx.method not in _HANDLED or not (skills := self._find_skills(ctx)).exist:
            return await call_next(ctx)
        if ctx.method in _ANNOUNCING:
            return _announce(await call_next(ctx))
        if ctx.method == READ_DIRECTORY and not _get_uri(ctx.params).startswith(SCHEME):
            return await call_next(ctx)  # Folders of other kinds are their server's own.
        require_initialized(ctx)
        return _shape(ctx, await (self._list if ctx.method == LIST else self._ask_one)(ctx, skills))

    def _find_skills(self, context: Any) -> "VisibleSkills":
        view = read_view(context.request.scope) if context.request is not None else VIEWER.get().view
        return VisibleSkills(self._relay, view, self._mode, owner_of(VIEWER.get().caller))

    async def _list_page(self, context: Any, skills: "VisibleSkills") -> JsonObject:
        entries = await skills.list_all(make_requester(context))
        start, cursor = 0, (context.params or {}).get("cursor")
        if cursor:
            try:
                start = bisect_right(entries, decode_cursor(str(cursor)), key=lambda entry: str(entry["uri"]))
            except (binascii.Error, ValueError) as error:
                raise MCPError(INVALID_PARAMS, "The cursor was not issued by this server") from error
        page = entries[start : start + PAGE_SIZE]
        more = {"nextCursor": encode_cursor(page[-1]["uri"])} if start + PAGE_SIZE < len(entries) else {}
        return {"skills": page, **more}

    async def _ask_owner(self, context: Any, skills: "VisibleSkills") -> JsonObject:
        act = skills.get if context.method == GET else skills.read_directory
        return await self._handlers.call_extension(context, act)


class VisibleSkills:
    """The skills of the plugins and servers of which one caller sees everything."""

    def __init__(self, relay: Relay, view: View, mode: Scope, owner: str) -> None:
        """`owner` is whose credentials the caller uses."""
        self._plugins: dict[str, PluginContents] = {}
        self._servers: dict[str, ServerProvider] = {}
        self._reads_directories: set[str] = set()
        for name, provider in relay.providers.items():
            tags, method = tags_of(provider), f"{name}{SEPARATOR}{LIST}"
            is_admitted = mode.carries(tags) and mode.admits(f"{name}{SEPARATOR}") and mode.admits(method)
            if not (is_admitted and view.shows_whole(name, tags) and view.admits(method)):
                continue
            if isinstance(provider, PluginContents):
                if provider.skills:
                    self._plugins[name] = provider
            elif isinstance(settings := find_declared(provider, owner).get("extensions", {}).get(EXTENSION), dict):
                self._servers[name] = provider
                if settings.get("directoryRead") is True:
                    self._reads_directories.add(name)
        self._relay = relay.select(frozenset(self._servers))

    @property
    def exist(self) -> bool:
        return bool(self._plugins or self._servers)

    async def list_all(self, requester: Requester) -> list[JsonObject]:
        """List all entries, in the order of their URIs."""
        listed = [entry for entries in (await self._relay.list_skills(requester)).values() for entry in entries]
        for contents, skill in self._list_own():
            with suppress(ServerRefused):  # one that cannot be read is in the log, and must not hide the others
                listed.append(attribute(contents.name, await contents.describe_skill(skill, requester)))
        return sorted(listed, key=lambda entry: str(entry["uri"]))

    async def get(self, params: JsonObject, requester: Requester) -> tuple[str, JsonObject]:
        """Return the owner of a skill, and the result for it; raise `ServerRefused` if there is none."""
        uri = _get_uri(params)
        for contents, skill in self._list_own():
            if skill.uri == uri:
                return contents.name, {
                    "skill": attribute(contents.name, await contents.describe_skill(skill, requester))
                }
        server, own = await self._find_server(uri, requester)
        result = await self._relay.get_skill(server, own, params, requester)
        if result is None:
            # Quarantined. Plain: its server was asked, so that there is an audit entry.
            unknown = _make_unknown_error(uri)
            raise ServerRefused(unknown.code, unknown.message)
        return server, result

    async def read_directory(self, params: JsonObject, requester: Requester) -> tuple[str, JsonObject]:
        """Return the owner of a folder, and what is in it; raise `ServerRefused` if there is no such folder."""
        uri = _get_uri(params)
        named = split_skill_uri(uri)
        if named is not None and named[0] in self._reads_directories:
            return named[0], await self._relay.read_skill_directory(*named, params, requester)
        children = sorted(
            {child for file in await self._list_files(requester) if (child := _find_child(uri, file)) is not None}
        )
        if named is None or not children:
            raise UnknownName("skill", uri, INVALID_PARAMS, f"{uri[:200]} is no folder of a skill")
        return named[0], {"resources": [_describe_child(uri, child) for child in children]}

    async def _list_files(self, requester: Requester) -> list[str]:
        own = [uri for _, skill in self._list_own() for uri, _ in skill.files]
        entries = (entry for listed in (await self._relay.list_skills(requester)).values() for entry in listed)
        return own + [file["uri"] for entry in entries if entry["resources"] != DYNAMIC for file in entry["resources"]]

    async def _find_server(self, uri: str, requester: Requester) -> tuple[str, str]:
        """Return the server of a skill and its own URI; one without a server's name has to be one server's alone."""
        if (named := split_skill_uri(uri)) is not None and named[0] in self._servers:
            return named
        if named is not None and named[0] in self._plugins:
            raise _make_unknown_error(uri)
        if (chosen := requester.named_server) is not None and chosen in self._servers:
            return chosen, uri
        listed = await self._relay.list_skills(requester)
        having = [
            server for server in listed if any(e["uri"] == qualify_skill_uri(server, uri) for e in listed[server])
        ]
        if len(having) > 1:
            names = " or ".join(qualify_skill_uri(server, uri)[:200] for server in having[:3])
            raise ServerRefused(INVALID_PARAMS, f"Several servers have the skill {uri[:200]}: ask for {names}")
        if not having and len(self._servers) == 1:
            having = [*self._servers]  # It need not list all of its skills.
        if not having:
            raise _make_unknown_error(uri)
        return having[0], uri

    def _list_own(self) -> Iterator[tuple[PluginContents, Skill]]:
        for provider in self._plugins.values():
            for skill in provider.skills.values():
                yield provider, skill


def _get_uri(params: Any) -> str:
    uri = (params or {}).get("uri")
    return uri if isinstance(uri, str) else ""


def _make_unknown_error(uri: str) -> UnknownName:
    return UnknownName("skill", uri, INVALID_PARAMS, f"No skill is served at {uri[:200]}")


def _find_child(folder: str, file: str) -> tuple[str, bool] | None:
    """Return what leads from a folder to a file, and whether that is a folder; None if the file is not in it."""
    start = folder if folder == SCHEME else f"{folder}/"
    if not file.startswith(start):
        return None
    name, separator, _ = file.removeprefix(start).partition("/")
    return name, bool(separator)


def _describe_child(folder: str, child: tuple[str, bool]) -> JsonObject:
    name, is_folder = child
    kind = _DIRECTORY if is_folder else "text/markdown" if name.endswith(".md") else mimetypes.guess_type(name)[0]
    return {"uri": f"{folder}/{name}", "name": name, **({"mimeType": kind} if kind else {})}


def _announce(result: HandlerResult) -> HandlerResult:
    if not isinstance(result, dict):
        return result
    capabilities: JsonObject = result.get("capabilities") or {}
    extensions: JsonObject = capabilities.get("extensions") or {}
    # Folders of skills can be read, whichever server has them.
    settings = extensions.get(EXTENSION, {}) | {"directoryRead": True}
    return result | {"capabilities": capabilities | {"extensions": extensions | {EXTENSION: settings}}}


def _shape(ctx: ServerRequestContext[Any, Any], result: JsonObject) -> JsonObject:
    stateless_fields = ("resultType", "ttlMs", "cacheScope")
    kept = {key: value for key, value in result.items() if key not in stateless_fields}
    if not is_stateless(ctx):
        return kept
    if result.get("resultType") == "input_required":
        return result
    stamp: JsonObject = msgspec.json.decode(SERVER_STAMP)
    cacheable = {} if ctx.method == READ_DIRECTORY else {"ttlMs": 0, "cacheScope": "private"}
    return kept | {"resultType": "complete", **cacheable, "_meta": stamp}
