"""The gateway's two own tools: thousands of tools for the tokens of two definitions.

`automatic_mcp` searches for tools, and returns the definitions that this session has not been sent yet. `automatic_eval` runs any
tool by name; the middleware sees the call of that tool, not of `automatic_eval`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import Final, Literal, NamedTuple

import msgspec

from toolpost.authoring.context import Context
from toolpost.base.caller import Caller
from toolpost.base.ids import META_KEY, CallerId, JsonObject, PluginName, ToolName
from toolpost.base.version import __version__
from toolpost.contracts.contract import Contract, ToolDefinition, contract_of
from toolpost.contracts.envelope import ResultStyle
from toolpost.contracts.errors import InvalidArguments, UnknownTool
from toolpost.discovery.catalog import Catalog
from toolpost.discovery.finder import LARGEST_TOKENS, QUERY_LIMIT, Finder, ToolSearchResult
from toolpost.discovery.search import estimate_tokens
from toolpost.discovery.views import View
from toolpost.metrics import Metrics
from toolpost.providers import ProvidedTool, RawResult
from toolpost.store.seen import SeenTools

AUTOMATIC_MCP: Final = "automatic_mcp"
AUTOMATIC_EVAL: Final = "automatic_eval"
AUTOMATIC_NAMES: Final = frozenset({AUTOMATIC_MCP, AUTOMATIC_EVAL})
OWNER: Final = PluginName("toolpost")
"""The plugin that the gateway's own tools belong to, in audit and metrics."""

SESSION_ID_LIMIT: Final = 256
MAX_LIMIT: Final = 50
MAX_KNOWN: Final = 100
MAX_SERVERS_IN_DESCRIPTION: Final = 60
MAX_SERVERS_IN_NOTE: Final = 30
MAX_TOO_LARGE_IN_NOTE: Final = 5
TIME_LIMIT_S: Final = 60.0

_encode = msgspec.json.Encoder().encode

_MCP_DESCRIPTION: Final = """\
Finds tools by what you want to do. The definitions of the tools here are not in your context until you search for them: \
search first, read the definitions, then run a tool with automatic_eval.

How to ask: one search for each sub-task (several narrow searches find more than one that holds the whole task), in English, \
in a few words that name the action, its object and, if you know it, the service: "list open pull requests on github".

What comes back: `tools` has whole definitions, only those that this session has not been sent before. `known` names tools \
that fit as well or better and that you were sent already: use them as they are. If their definitions are no longer in your \
context, search again with forceRefresh. `more` names tools that fit less well: search for one by its name to get its \
definition. `note`, where there is one, says what to make of the answer."""

_MCP_INPUT_SCHEMA: Final[JsonObject] = {
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
            "maximum": MAX_LIMIT,
            "description": "How many definitions to send at most. Without it: as many as fit well, 15 at most.",
        },
    },
    "additionalProperties": False,
}
_MCP_OUTPUT_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "etag": {"type": "string", "description": "Changes when the definition of any tool here does, and only then."},
        "tools": {
            "type": "array",
            "items": {"type": "object", "required": ["name", "inputSchema"]},
            "description": "Definitions exactly as tools/list has them, best first.",
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
def mcp_contract(servers: tuple[PluginName, ...]) -> Contract:
    """Return the contract for a caller who sees these servers; it changes only when the servers do."""
    servers_note = f"\n\nServers here: {_enumerate(servers, MAX_SERVERS_IN_DESCRIPTION)}." if servers else ""
    terms = ToolDefinition(
        name=AUTOMATIC_MCP,
        title="Find tools",
        description=f"{_MCP_DESCRIPTION}{servers_note}",
        input_schema=_MCP_INPUT_SCHEMA,
        output_schema=_MCP_OUTPUT_SCHEMA,
        tooling_version=__version__,
        annotations={"readOnlyHint": True, "openWorldHint": False},
        timeout_s=TIME_LIMIT_S,
        style=ResultStyle.PLAIN,
    )
    return contract_of(terms, plugin=OWNER, is_bare=True)


class AutomaticMcp:
    """Answers searches; the store keeps what each session has been sent."""

    def __init__(self, finder: Finder, seen: SeenTools, metrics: Metrics) -> None:
        self.finder = finder
        self._seen = seen
        self._metrics = metrics

    def tool(self, catalog: Catalog, view: View) -> ProvidedTool:
        """Return the tool for one view; `catalog` is what that view shows."""
        return ProvidedTool(
            contract=mcp_contract(catalog.servers), provider=OWNER, invoke=partial(self._invoke, view=view)
        )

    async def _invoke(self, arguments: JsonObject, context: Context, *, view: View) -> RawResult:
        query: str = arguments.get("query", "").strip()
        key = session_key(context.caller, arguments.get("sessionId"))
        seen = {} if arguments.get("forceRefresh") else await self._seen.recall(*key)
        limit = arguments.get("limit")
        if query:
            found = await self.finder.find(query, view, limit=limit)
        else:
            found = await self.finder.suggest(seen, view, limit=limit)
        visible = found.visible
        fresh = [name for name in found.names if seen.get(name) != visible.entry(name).digest]
        sent = {name: visible.entry(name).digest for name in fresh}
        known = [name for name in (found.names if query else seen) if name in visible and name not in sent]
        await self._seen.remember(*key, sent)
        answer: JsonObject = {
            "etag": visible.etag,
            "tools": [visible.listed_definition(name) for name in fresh],
            "totalAvailable": len(visible),
            "filtered": len(fresh),
            # The last ones: a conversation is most likely still about what was sent last.
            "known": [visible.listed_name(name) for name in known[-MAX_KNOWN:]],
        }
        if more := [name for name in found.next_names if name not in sent and name not in known]:
            answer["more"] = [visible.listed_name(name) for name in more]
        if note := " ".join(_notes(found, query, fresh, known)):
            answer["note"] = note
        counts = token_counts(estimate_tokens(_encode(answer)), found)
        self._metrics.searches.add(of="unasked" if not query else "weak" if found.is_weak else "strong")
        self._metrics.tokens_sent.add(counts["sent"])
        self._metrics.tokens_saved.add(counts["saved"])
        return RawResult(value=answer, facts={"tokens": counts})


class SessionKey(NamedTuple):
    """A session of one caller; two callers never share one, even if they choose the same `sessionId`."""

    caller: CallerId
    session: str


def session_key(caller: Caller, session_id: str | None) -> SessionKey:
    """Identify the session of a search: the `sessionId` argument, else the MCP session, else the caller alone.

    A `sessionId` survives restarts and is known to every gateway on the same store. The MCP session separates two agents of one
    caller that send none: each gets every definition once.
    """
    text = f"named {session_id}" if session_id else f"connection {caller.session or ''}"
    # Hashed, because a caller chooses its length and its characters, and a database does not take all of them.
    return SessionKey(caller.id, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32])


def token_counts(sent: int, found: ToolSearchResult) -> JsonObject:
    """Return the estimated tokens of an answer, of listing every tool, and the difference."""
    listing = found.visible.tokens
    return {"sent": sent, "listing": listing, "saved": max(0, listing - sent)}


def _notes(found: ToolSearchResult, query: str, fresh: Sequence[str], known: Sequence[str]) -> Iterator[str]:
    """Yield the sentences of the answer's `note`: what a model cannot see from its other parts."""
    visible = found.visible
    if not visible:
        yield "There are no tools here at this moment."
        return
    if len(query) > QUERY_LIMIT:
        yield f"Only the first {QUERY_LIMIT} characters of the query were read: ask for one sub-task at a time."
    if query and not found.hits:
        yield (
            "No tool matches. Ask again in other English words, for one sub-task, and name the service."
            f" Servers here: {_enumerate(visible.servers, MAX_SERVERS_IN_NOTE)}."
        )
    elif query and found.is_weak:
        yield (
            "No tool is a strong match: the best of them are here, and may not be what you need. Ask again in other English"
            f" words, for one sub-task, and name the service. Servers here: {_enumerate(visible.servers, MAX_SERVERS_IN_NOTE)}."
        )
    if found.too_large:
        names = [visible.listed_name(name) for name in found.too_large]
        yield (
            f"{_enumerate(names, MAX_TOO_LARGE_IN_NOTE)}: fits as well, but the definition takes over"
            f" {LARGEST_TOKENS:,} tokens; search for a tool by its exact name to get it."
        )
    if known and not fresh:
        yield (
            "Every tool that fits was sent to this session before; if its definition is no longer in your context,"
            " search again with forceRefresh."
        )
    if not query and (left := len(visible) - len(fresh) - len(known)) > 0:
        yield f"There are {left} more tools: search for what you need, or ask again for the next few."


def _enumerate(names: Sequence[str], limit: int) -> str:
    text = ", ".join(names[:limit])
    return text if len(names) <= limit else f"{text} and {len(names) - limit} more"


# automatic_eval

ROUTING_KEY_LIMIT: Final = 256
TOOL_NAME_LIMIT: Final = 256

_EVAL_INPUT_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "toolName": {
            "type": "string",
            "minLength": 1,
            "maxLength": TOOL_NAME_LIMIT,
            "description": "The name of a tool, exactly as automatic_mcp returned it.",
        },
        "arguments": {
            "type": "object",
            "additionalProperties": True,
            "default": {},
            "description": "The tool's arguments, as its inputSchema asks for.",
        },
        "routingKey": {
            "type": "string",
            "minLength": 1,
            "maxLength": ROUTING_KEY_LIMIT,
            "description": "Calls with the same key reach the same instance of a server that keeps one for each session.",
        },
    },
    "required": ["toolName"],
    "additionalProperties": False,
}


class ResolvedCall(NamedTuple):
    """The call that is made in the end."""

    tool: ProvidedTool
    arguments: JsonObject
    meta: JsonObject | None
    via: ToolName | None
    """`automatic_eval` if the tool was called through it."""


@cache
def eval_contract() -> Contract:
    # No output schema: the result is that of any tool.
    terms = ToolDefinition(
        name=AUTOMATIC_EVAL,
        title="Run a tool",
        description="Runs a tool that automatic_mcp has found, and returns that tool's own result. Arguments that break the"
        " tool's inputSchema are refused with each fault and with the definition (`toolSchema`): mend them and call again.",
        input_schema=_EVAL_INPUT_SCHEMA,
        tooling_version=__version__,
        annotations={"openWorldHint": True},
        style=ResultStyle.PLAIN,
    )
    return contract_of(terms, plugin=OWNER, is_bare=True)


def _resolve_eval(arguments: JsonObject, meta: JsonObject | None, catalog: Catalog) -> ResolvedCall:
    """Turn a call of `automatic_eval` into the call of the tool that it names.

    Wrong arguments of `automatic_eval` and unknown tools are refused as calls of `automatic_eval` itself, so that they are
    audited like any other refusal.
    """
    if eval_contract().find_argument_issues(arguments):
        return ResolvedCall(_make_refusing_tool(None), arguments, meta, None)
    try:
        tool = catalog.find(arguments["toolName"])
    except UnknownTool as error:
        return ResolvedCall(_make_refusing_tool(_add_hint(error)), arguments, meta, None)
    if not tool.contract.is_for_models:
        name = arguments["toolName"][:128]
        refusal = UnknownTool(f"`{name}` is for the app of its server, not for models.", tool=name, nearest=[])
        return ResolvedCall(_make_refusing_tool(_add_hint(refusal)), arguments, meta, None)
    if (routing_key := arguments.get("routingKey")) is not None:
        # Providers look for the routing key in the metadata of a call.
        ours = (meta or {}).get(META_KEY)
        meta = {**(meta or {}), META_KEY: {**(ours if isinstance(ours, dict) else {}), "routingKey": routing_key}}
    return ResolvedCall(tool, arguments.get("arguments", {}), meta, ToolName(AUTOMATIC_EVAL))


def refuse_arguments(error: InvalidArguments, definition: JsonObject) -> JsonObject:
    """Return the result of `automatic_eval` when the arguments break the schema of the tool that it was to run."""
    issues: Sequence[JsonObject] = error.details.get("issues", ())
    summary = "; ".join(str(issue.get("message")) for issue in issues[:3]) or error.message
    return {
        "error": f"invalid tool arguments: {summary}",
        "toolSchema": definition,
        "code": error.code.value,
        "issues": list(issues),
    }


def _make_refusing_tool(error: UnknownTool | None) -> ProvidedTool:
    async def invoke(_arguments: JsonObject, _context: Context) -> RawResult:
        raise error or AssertionError("the validating middleware refuses these arguments first")

    return ProvidedTool(contract=eval_contract(), provider=OWNER, invoke=invoke)


def _add_hint(error: UnknownTool) -> UnknownTool:
    hint = f"`{AUTOMATIC_MCP}` finds tools by what they do"
    if error.details.get("nearest") or "server" in error.details:
        hint = error.hint or hint
    if error.details.get("tool") in (AUTOMATIC_EVAL, AUTOMATIC_MCP):
        hint = "call it directly"
    return UnknownTool(error.message, hint=hint, **error.details)


# Both

Mode = Literal["all", "automatic", "both"]
"""What an endpoint lists: all tools, only these two, or both."""

INSTRUCTIONS: Final = (
    "Many tools stand behind two: automatic_mcp finds them, automatic_eval runs them. For each sub-task call automatic_mcp"
    " with a short English query that names the service, and read the definitions that it returns. Then call automatic_eval"
    " with a tool's name and arguments that follow its inputSchema; a refusal names each fault and carries the schema, so"
    " mend the arguments and call again."
)
"""Added to the `instructions` of an endpoint that lists the two tools."""


def automatic_definitions(catalog: Catalog) -> list[JsonObject]:
    """Return the definitions of both; that of `automatic_mcp` names the servers of this catalog."""
    return [eval_contract().definition, mcp_contract(catalog.servers).definition]


def resolve_call(
    name: str,
    arguments: JsonObject,
    meta: JsonObject | None,
    *,
    catalog: Catalog,
    view: View,
    automatic_mcp: AutomaticMcp,
) -> ResolvedCall:
    """Turn a call of one of the two into the call that passes the middleware.

    That is `automatic_mcp` itself, or the tool that `automatic_eval` is asked to run.
    """
    if name == AUTOMATIC_MCP:
        return ResolvedCall(automatic_mcp.tool(catalog, view), arguments, meta, None)
    return _resolve_eval(arguments, meta, catalog)
