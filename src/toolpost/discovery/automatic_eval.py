"""`automatic_eval`: a call of any tool, put to one. What passes the pipeline is the call of the real tool."""

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

from toolpost.authoring.context import Context
from toolpost.base.ids import META_KEY, JsonObject, ToolName
from toolpost.base.version import __version__
from toolpost.contracts.contract import Contract, Terms, contract_of
from toolpost.contracts.envelope import ResultStyle
from toolpost.contracts.errors import InvalidArguments, UnknownTool
from toolpost.discovery import automatic_mcp
from toolpost.discovery.catalog import Catalogue
from toolpost.providers import ProvidedTool, ToolReturn

NAME: Final = "automatic_eval"

ROUTING_KEY_LIMIT: Final = 256
TOOL_NAME_LIMIT: Final = 256

_TAKES: Final[JsonObject] = {
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


class Wish(NamedTuple):
    """What is called in the end."""

    tool: ProvidedTool
    arguments: JsonObject
    meta: JsonObject | None
    via: ToolName | None
    """The tool that the wish was put to, if it is another one."""


@cache
def contract() -> Contract:
    """Return the contract. It lists no output schema: the result is that of any tool."""
    terms = Terms(
        name=NAME,
        title="Run a tool",
        description="Runs a tool that automatic_mcp has found, and returns that tool's own result. Arguments that break the"
        " tool's inputSchema are refused with each fault and with the definition (`toolSchema`): mend them and call again.",
        input_schema=_TAKES,
        tooling_version=__version__,
        annotations={"openWorldHint": True},
        style=ResultStyle.PLAIN,
    )
    return contract_of(terms, plugin=automatic_mcp.OWNER, is_bare=True)


def wish_of(arguments: JsonObject, meta: JsonObject | None, catalogue: Catalogue) -> Wish:
    """Turn a call of `automatic_eval` into the call that it asks for; one that asks for none is refused in its own name."""
    if contract().find_argument_issues(arguments):
        return Wish(_refusing(None), arguments, meta, None)
    try:
        tool = catalogue.find(arguments["toolName"])
    except UnknownTool as error:
        return Wish(_refusing(_unknown(error)), arguments, meta, None)
    return Wish(tool, arguments.get("arguments", {}), _routed(meta, arguments.get("routingKey")), ToolName(NAME))


def refusal_of(error: InvalidArguments, definition: JsonObject) -> JsonObject:
    """Return what a caller of `automatic_eval` reads when the tool's own arguments are wrong."""
    issues: Sequence[JsonObject] = error.details.get("issues", ())
    told = "; ".join(str(issue.get("message")) for issue in issues[:3]) or error.message
    return {
        "error": f"invalid tool arguments: {told}",
        "toolSchema": definition,
        "code": error.code.value,
        "issues": list(issues),
    }


def _refusing(error: UnknownTool | None) -> ProvidedTool:
    async def invoke(_arguments: JsonObject, _context: Context) -> ToolReturn:
        raise error or AssertionError("the pipeline refuses such arguments")

    return ProvidedTool(contract=contract(), provider=automatic_mcp.OWNER, invoke=invoke)


def _unknown(error: UnknownTool) -> UnknownTool:
    hint = f"`{automatic_mcp.NAME}` finds tools by what they do"
    if error.details.get("nearest") or "server" in error.details:
        hint = error.hint or hint
    if error.details.get("tool") in (NAME, automatic_mcp.NAME):
        hint = "call it directly"
    return UnknownTool(error.message, hint=hint, **error.details)


def _routed(meta: JsonObject | None, key: str | None) -> JsonObject | None:
    """Put the routing key where a source looks for it."""
    if key is None:
        return meta
    facts = (meta or {}).get(META_KEY)
    return {**(meta or {}), META_KEY: {**(facts if isinstance(facts, dict) else {}), "routingKey": key}}
