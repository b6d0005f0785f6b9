"""`/api/console/tools`: the tools that a caller sees, found as an agent finds them, and all that is known of one.

GET /api/console/tools?server=&named=&offset=&limit= a page of them, by name; `named` is a part of it
GET /api/console/tools/search?query=&caller=         the best, with scores and reasons; as another caller, for administrators
GET /api/console/tool?name=                          its definition, what it costs, who sees it
GET /api/console/tool/history?name=                  the definitions that it has had
"""

from collections.abc import Sequence
from typing import Final

from anyio import to_thread

from toolpost.base import Json, JsonObject, Scope, ToolName
from toolpost.contracts import Definition, InvalidRequest
from toolpost.discovery import ToolEntry, View, VisibleTools, estimate_tokens
from toolpost.endpoints.http import Route, RouteRequest
from toolpost.middleware import ProvidedTool
from toolpost.parts.console.api.callers import act_as, list_callers
from toolpost.parts.console.context import Console, text_of
from toolpost.parts.console.definitions import DefinitionHistory, Version
from toolpost.protocol import encode

PAGE_LIMIT: Final = 500
FOUND_LIMIT: Final = 50
_SUMMARY_CHARS: Final = 240


def routes_of(console: Console) -> list[Route]:
    """Make the paths."""
    finder = console.http.finder
    history = DefinitionHistory(console.host.store)
    roster = console.http.access.roster

    async def list_tools(request: RouteRequest) -> Json:
        visible = await finder.visible(request.admission.view)
        server, named = request.query.get("server"), request.query.get("named", "").lower()
        names = [
            name
            for name in visible.names
            if named in name.lower() and (not server or visible.entry(name).server == server)
        ]
        offset, limit = _number(request, "offset", 0), min(PAGE_LIMIT, _number(request, "limit", 100))
        return {
            "total": len(names),
            "all": len(visible),
            "servers": list(visible.servers),
            "tokens": visible.tokens,
            "etag": visible.etag,
            "offset": offset,
            "tools": [_summarize(name, visible.entry(name)) for name in names[offset : offset + limit]],
        }

    async def search(request: RouteRequest) -> Json:
        query = text_of(request, "query")
        _, view = act_as(roster, request.admission, request.query.get("caller"))
        found = await finder.find(query, view, explain=True)
        return {
            "total": len(found.visible),
            "confidence": round(found.confidence, 3),
            "isWeak": found.is_weak,
            "isReranked": found.is_reranked,
            "tools": [
                _summarize(ToolName(hit.name), found.visible.entry(hit.name))
                | {"score": round(hit.score, 4), "why": [{"field": m.field, "words": list(m.words)} for m in hit.why]}
                for hit in found.hits[:FOUND_LIMIT]
            ],
            "more": list(found.next_names),
        }

    async def show(request: RouteRequest) -> Json:
        view = request.admission.view
        tool = await _find(console, view, text_of(request, "name"))
        visible = await finder.visible(view)
        callers = _list_visibility(console, tool) if request.admission.is_admin else []
        return _describe(tool, visible) | {"callers": callers}

    async def show_history(request: RouteRequest) -> Json:
        tool = await _find(console, request.admission.view, text_of(request, "name"))
        versions = await history.of_tool(tool.contract.name)
        return {"versions": [_render_version(console, version) for version in versions]}

    return [
        console.read("/tools", list_tools),
        console.read("/tools/search", search),
        console.read("/tool", show),
        console.read("/tool/history", show_history),
    ]


async def _find(console: Console, view: View, name: str) -> ProvidedTool:
    """Return a tool that a view shows, quarantined ones included; raises `UnknownTool` with similar names."""
    # In a thread: a view that is new goes through all tools.
    catalog = await to_thread.run_sync(console.http.gateway.catalog.narrow, view)
    return catalog.find(name)


def _summarize(name: ToolName, entry: ToolEntry) -> JsonObject:
    listed = entry.definition
    annotations = listed.get("annotations")
    text = entry.description.strip()
    return {
        "name": name,
        "server": entry.server,
        "title": listed.get("title") or "",
        "description": text if len(text) <= _SUMMARY_CHARS else f"{text[:_SUMMARY_CHARS].rstrip()}…",
        "tokens": entry.tokens,
        "annotations": annotations if isinstance(annotations, dict) else {},
    }


def _describe(tool: ProvidedTool, visible: VisibleTools) -> JsonObject:
    contract = tool.contract
    is_listed = contract.name in visible
    entry = visible.entry(contract.name) if is_listed else None
    return {
        "name": contract.name,
        "server": tool.provider,
        "isListed": is_listed,
        "isUpstream": contract.is_upstream,
        "definition": contract.definition,
        "annotations": dict(contract.annotations),
        "digest": contract.digest,
        "timeoutSeconds": contract.timeout_s,
        "concurrency": Definition.from_contract(contract).concurrency,
        "errorCodes": [code.value for code in contract.terms.errors],
        "aliases": list(contract.aliases),
        "schemaVersion": contract.terms.schema_version,
        "toolingVersion": contract.terms.tooling_version,
        "tokens": entry.tokens if entry is not None else estimate_tokens(encode(contract.definition)),
        "allTokens": visible.tokens,
    }


def _list_visibility(console: Console, tool: ProvidedTool) -> Sequence[JsonObject]:
    """Tell of every caller whether it sees a tool, and if not, why."""
    tags = console.http.gateway.catalog.tags.get(tool.provider, frozenset())
    rows: list[JsonObject] = []
    for name, scopes in list_callers(console.http.access.roster):
        reason = next((why for scope in scopes if (why := _reason(scope, tool, tags)) is not None), None)
        rows.append({"caller": name, "sees": reason is None, "reason": reason})
    return rows


def _reason(scope: Scope, tool: ProvidedTool, tags: frozenset[str]) -> str | None:
    """Return why a scope does not show a tool; None if it does."""
    contract = tool.contract
    if not scope.carries(tags):
        return f"its server has none of the tags {', '.join(sorted(scope.tags or ())) or '(none)'}"
    if not scope.admits(contract.name):
        return f"no pattern of {', '.join(scope.tools or ()) or '(none)'} allows its name"
    if not scope.allows(tool.provider, contract.annotations, is_upstream=contract.is_upstream):
        claimed = contract.annotations.get("readOnlyHint") is True
        return "its server's annotations are not confirmed as true" if claimed else "it is not annotated as read-only"
    return None


def _render_version(console: Console, version: Version) -> JsonObject:
    definition = version.definition
    return {
        "number": version.number,
        "seenAt": console.host.store.scripts.wall(version.seen_at),
        "schemaVersion": definition.schema_version,
        "toolingVersion": definition.tooling_version,
        "definition": definition.to_json(),
        "judgement": version.judgement.to_json() if version.judgement is not None else None,
    }


def _number(request: RouteRequest, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not text.isdecimal() or len(text) > 9:
        raise InvalidRequest(f"`{name}` is a whole number.")
    return int(text)
