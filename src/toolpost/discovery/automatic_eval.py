"""`automatic_eval`: runs any tool by name. The middleware sees the call of that tool, not of `automatic_eval`."""

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
from toolpost.discovery.catalog import Catalog
from toolpost.providers import ProvidedTool, ToolReturn

NAME: Final = "automatic_eval"

ROUTING_KEY_LIMIT: Final = 256
TOOL_NAME_LIMIT: Final = 256

_INPUT_SCHEMA: Final[JsonObject] = {
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
def contract() -> Contract:
    # No output schema: the result is that of any tool.
    terms = Terms(
        name=NAME,
        title="Run a tool",
        description="Runs a tool that automatic_mcp has found, and returns that tool's own result. Arguments that break the"
        " tool's inputSchema are refused with each fault and with the definition (`toolSchema`): mend them and call again.",
        input_schema=_INPUT_SCHEMA,
        tooling_version=__version__,
        annotations={"openWorldHint": True},
        style=ResultStyle.PLAIN,
    )
    return contract_of(terms, plugin=automatic_mcp.OWNER, is_bare=True)


def resolve_call(arguments: JsonObject, meta: JsonObject | None, catalog: Catalog) -> ResolvedCall:
    """Turn a call of `automatic_eval` into the call of the tool that it names.

    Wrong arguments of `automatic_eval` and unknown tools are refused as calls of `automatic_eval` itself, so that they are
    audited like any other refusal.
    """
    if contract().find_argument_issues(arguments):
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
    return ResolvedCall(tool, arguments.get("arguments", {}), meta, ToolName(NAME))


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
    async def invoke(_arguments: JsonObject, _context: Context) -> ToolReturn:
        raise error or AssertionError("the validating middleware refuses these arguments first")

    return ProvidedTool(contract=contract(), provider=automatic_mcp.OWNER, invoke=invoke)


def _add_hint(error: UnknownTool) -> UnknownTool:
    hint = f"`{automatic_mcp.NAME}` finds tools by what they do"
    if error.details.get("nearest") or "server" in error.details:
        hint = error.hint or hint
    if error.details.get("tool") in (NAME, automatic_mcp.NAME):
        hint = "call it directly"
    return UnknownTool(error.message, hint=hint, **error.details)
