"""`automatic_mcp`: the definitions that a task needs and that this session has not been sent."""

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Final

import msgspec

from toolpost.authoring.context import Context
from toolpost.base.ids import JsonObject, PluginName
from toolpost.base.version import __version__
from toolpost.contracts.contract import Contract, Terms, contract_of
from toolpost.contracts.envelope import ResultStyle
from toolpost.discovery.catalog import Catalogue
from toolpost.discovery.finder import QUERY_LIMIT, Finder, Found
from toolpost.discovery.search import tokens
from toolpost.discovery.session import session_of
from toolpost.discovery.views import View
from toolpost.metrics import Metrics
from toolpost.providers import ProvidedTool, ToolReturn
from toolpost.store import SeenTools

NAME: Final = "automatic_mcp"
OWNER: Final = PluginName("toolpost")
"""Whose tools the gateway's own are, on the record."""

SESSION_ID_LIMIT: Final = 256
LIMIT_MOST: Final = 50
KNOWN_SHOWN: Final = 100
SERVERS_SHOWN: Final = 60
SERVERS_NOTED: Final = 30
TIME_LIMIT_S: Final = 60.0

_encode = msgspec.json.Encoder().encode

_TEACHES: Final = """\
Finds tools by what you want to do. The definitions of the tools here are not in your context until you search for them: \
search first, read the definitions, then run a tool with automatic_eval.

How to ask: one search for each sub-task (several narrow searches find more than one that holds the whole task), in English, \
in a few words that name the action, its object and, if you know it, the service: "list open pull requests on github".

What comes back: `tools` has whole definitions, only those that this session has not been sent before. `known` names tools \
that fit as well or better and that you were sent already: use them as they are. If their definitions are no longer in your \
context, search again with forceRefresh. `more` names tools that fit less well: search for one by its name to get its \
definition. `note`, where there is one, says what to make of the answer."""

_TAKES: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "What one sub-task needs, in a few English words, with the name of the service if you know it."
            " Without it: tools that you have not been sent yet, the best known first, a few at a time.",
        },
        "sessionId": {
            "type": "string",
            "maxLength": SESSION_ID_LIMIT,
            "description": "A name of your own for this conversation, the same in every search of it. Without it, the"
            " connection or whoever is calling counts as one conversation.",
        },
        "forceRefresh": {
            "type": "boolean",
            "default": False,
            "description": "Send every definition that fits, also those that were sent before.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": LIMIT_MOST,
            "description": "How many definitions to send at most. Without it: as many as fit well, 15 at most.",
        },
    },
    "additionalProperties": False,
}
_GIVES: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "etag": {"type": "string", "description": "Changes when the definition of any tool here does, and only then."},
        "tools": {
            "type": "array",
            "items": {"type": "object", "required": ["name", "inputSchema"]},
            "description": "Definitions as tools/list has them, best first, without what only programs read.",
        },
        "totalAvailable": {"type": "integer", "minimum": 0, "description": "How many tools there are in all."},
        "filtered": {"type": "integer", "minimum": 0, "description": "How many definitions this answer has."},
        "known": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Names of tools that fit and whose definitions were sent before.",
        },
        "more": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Names of further tools, which fit less well, best first.",
        },
        "note": {"type": "string", "description": "What to make of the answer, where there is something to say."},
    },
    "required": ["etag", "tools", "totalAvailable", "filtered", "known"],
}


@lru_cache(maxsize=64)
def contract_for(servers: tuple[PluginName, ...]) -> Contract:
    """Return the contract as it is listed to somebody who sees these servers; another one only when the servers are others."""
    there = f"\n\nServers here: {_enumerated(servers, SERVERS_SHOWN)}." if servers else ""
    terms = Terms(
        name=NAME,
        title="Find tools",
        description=f"{_TEACHES}{there}",
        input_schema=_TAKES,
        output_schema=_GIVES,
        tooling_version=__version__,
        annotations={"readOnlyHint": True, "openWorldHint": False},
        timeout_s=TIME_LIMIT_S,
        style=ResultStyle.PLAIN,
    )
    return contract_of(terms, plugin=OWNER, is_bare=True)


class AutomaticMcp:
    """Hands out definitions; what each session has been sent is in the store."""

    def __init__(self, finder: Finder, seen: SeenTools, metrics: Metrics) -> None:
        self.finder = finder
        self._seen = seen
        self._metrics = metrics

    def tool(self, catalogue: Catalogue, view: View) -> ProvidedTool:
        """Return the tool for whoever sees this of the catalogue."""
        return ProvidedTool(
            contract=contract_for(catalogue.servers), provider=OWNER, invoke=partial(self._invoke, view=view)
        )

    async def _invoke(self, arguments: JsonObject, context: Context, *, view: View) -> ToolReturn:
        query: str = arguments.get("query", "").strip()
        key = session_of(context.caller, arguments.get("sessionId"))
        seen = {} if arguments.get("forceRefresh") else await self._seen.recall(*key)
        limit = arguments.get("limit")
        if query:
            found = await self.finder.find(query, view, limit=limit)
        else:
            found = await self.finder.unasked(seen, view, limit=limit)
        visible = found.visible
        fresh = [name for name in found.names if seen.get(name) != visible.entry(name).digest]
        sent = {name: visible.entry(name).digest for name in fresh}
        known = [name for name in (found.names if query else seen) if name in visible and name not in sent]
        await self._seen.remember(*key, sent)
        answer: JsonObject = {
            "etag": visible.etag,
            "tools": [visible.entry(name).definition for name in fresh],
            "totalAvailable": len(visible),
            "filtered": len(fresh),
            # What was sent last is what a conversation most likely still is about.
            "known": known[-KNOWN_SHOWN:],
        }
        if more := [name for name in found.next_names if name not in sent and name not in known]:
            answer["more"] = more
        if note := " ".join(_notes(found, query, fresh, known)):
            answer["note"] = note
        return ToolReturn(value=answer, facts={"tokens": self._accounted(found, answer, is_asked=bool(query))})

    def _accounted(self, found: Found, answer: JsonObject, *, is_asked: bool) -> JsonObject:
        """Count what the answer costs a model, and what listing everything would have."""
        account = account_of(tokens(_encode(answer)), found)
        self._metrics.searches.add(of="unasked" if not is_asked else "weak" if found.is_weak else "strong")
        self._metrics.tokens_sent.add(account["sent"])
        self._metrics.tokens_saved.add(account["saved"])
        return account


def account_of(sent: int, found: Found) -> JsonObject:
    """Return the tokens that were sent, that listing everything would take, and that were saved."""
    listing = found.visible.tokens
    return {"sent": sent, "listing": listing, "saved": max(0, listing - sent)}


def _notes(found: Found, query: str, fresh: Sequence[str], known: Sequence[str]) -> Iterator[str]:
    """Say what a reader of the answer would not see in it."""
    visible = found.visible
    if not visible:
        yield "There are no tools here at this moment."
        return
    if len(query) > QUERY_LIMIT:
        yield f"Only the first {QUERY_LIMIT} characters of the query were read: ask for one sub-task at a time."
    if query and not found.hits:
        yield (
            "No tool matches. Ask again in other English words, for one sub-task, and name the service."
            f" Servers here: {_enumerated(visible.servers, SERVERS_NOTED)}."
        )
    elif query and found.is_weak:
        yield (
            "No tool is a strong match: the best of them are here, and may not be what you need. Ask again in other English"
            f" words, for one sub-task, and name the service. Servers here: {_enumerated(visible.servers, SERVERS_NOTED)}."
        )
    if known and not fresh:
        yield (
            "Every tool that fits was sent to this session before; if its definition is no longer in your context,"
            " search again with forceRefresh."
        )
    if not query and (left := len(visible) - len(fresh) - len(known)) > 0:
        yield f"There are {left} more tools: search for what you need, or ask again for the next few."


def _enumerated(servers: Sequence[str], most: int) -> str:
    shown = ", ".join(servers[:most])
    return shown if len(servers) <= most else f"{shown} and {len(servers) - most} more"
