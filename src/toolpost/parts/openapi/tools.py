"""The plugin of an API: a tool for each operation that was selected."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

import msgspec

from toolpost import Context, ErrorCode, Plugin, ResultStyle, Tool, ToolpostError
from toolpost.base import Json, JsonObject, PluginName
from toolpost.contracts import ToolDefinition, contract_of
from toolpost.parts.openapi.document import Document, Unusable
from toolpost.parts.openapi.operations import BODY_KEY, Body, Omission, Operation, find_operations, is_selected
from toolpost.parts.openapi.schemas import DESCRIPTION_LIMIT, FILE, Converter, Direction, shorten

REQUEST_LIMIT_BYTES: Final = 32 * 1024
ANSWER_LIMIT_BYTES: Final = 16 * 1024
"""How large the schemas of one tool may be, with all that they refer to."""

TOOLS_LIMIT: Final = 20_000
"""As many as are listed of a server."""

RESULT_KEY: Final = "result"
"""Where the answer is in a result, if it is not an object: MCP's structured results are objects."""

CHARACTERS_PER_TOKEN: Final = 4
"""An estimate: between 3 and 5 for JSON, depending on the model."""

LOGIN_TYPES: Final = ("oauth2", "openIdConnect")
"""The types of security schemes that people log in for."""

Converters = Mapping[Direction, Converter]
"""One for each direction: each converts a schema once, for all tools that use it."""

_HINTS: Final[dict[str, JsonObject]] = {
    "GET": {"readOnlyHint": True},
    "HEAD": {"readOnlyHint": True},
    "OPTIONS": {"readOnlyHint": True},
    "TRACE": {"readOnlyHint": True},
    "PUT": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True},
    "DELETE": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True},
    "PATCH": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False},
    # Of POST nothing is known: most create something, some delete.
    "POST": {"readOnlyHint": False, "idempotentHint": False},
}


@dataclass(frozen=True, kw_only=True)
class OperationTool:
    """An operation with the contract of its tool."""

    operation: Operation
    terms: ToolDefinition
    is_wrapped: bool
    """Whether the answer is under `result`."""
    tokens: int
    """About how many tokens it takes to list."""


@dataclass(frozen=True, kw_only=True)
class ApiTools:
    """The tools of a document."""

    tools: list[OperationTool]
    omitted: list[Omission]
    unselected: list[Operation]
    schemes: dict[str, JsonObject]

    @property
    def tokens(self) -> int:
        """About how many tokens all tools take in a listing."""
        return sum(tool.tokens for tool in self.tools)

    @property
    def login_scopes(self) -> tuple[str, list[str]] | None:
        """The security scheme of the logins that most tools need, and the scopes that they ask for; None if they need none."""
        wanted: dict[str, list[str]] = {}
        for tool in self.tools:
            for scheme, asked in (tool.operation.security or ({},))[0].items():
                if self.schemes.get(scheme, {}).get("type") in LOGIN_TYPES:
                    wanted.setdefault(scheme, []).extend(asked)
        if not wanted:
            return None
        scheme = max(wanted, key=lambda each: len(wanted[each]))
        return scheme, list(dict.fromkeys(wanted[scheme]))


def make_tools(
    document: Document,
    api: str,
    *,
    allow: Iterable[str] = ("*",),
    deny: Iterable[str] = (),
    has_results: bool = True,
    timeout_s: float | None = None,
    hidden: frozenset[tuple[str, str]] = frozenset(),
) -> ApiTools:
    """Make the contracts of all selected operations. Takes a second for a thousand of them: call it in a thread.

    `hidden` are places and names of parameters that the configuration sets, so that callers need not.
    """
    found = find_operations(document, api)
    allowed, denied = list(allow), list(deny)
    selected: list[Operation] = []
    unselected: list[Operation] = []
    for each in found.usable:
        (selected if is_selected(each, allowed, denied) else unselected).append(each)
    converters: dict[Direction, Converter] = {each: Converter(document, each) for each in get_args(Direction)}
    tools: list[OperationTool] = []
    omitted = list(found.omitted)
    if len(selected) > TOOLS_LIMIT:
        reason = (
            f"the last {len(selected) - TOOLS_LIMIT:,} of {len(selected):,} operations: an API has at most {TOOLS_LIMIT:,} tools;"
            " select operations with `allow` and `deny`"
        )
        omitted.insert(0, Omission(method="*", path="*", reason=reason))
    for operation in selected[:TOOLS_LIMIT]:
        shown = tuple(
            each
            for each in operation.parameters
            if (each.place, each.name.lower() if each.place == "header" else each.name) not in hidden
        )
        try:
            tools.append(_make_tool(replace(operation, parameters=shown), converters, api, has_results, timeout_s))
        except Unusable as reason:
            omitted.append(Omission(method=operation.method, path=operation.path, reason=str(reason)))
    return ApiTools(
        tools=tools,
        omitted=omitted,
        unselected=unselected,
        schemes=dict(found.schemes),
    )


def _make_tool(
    operation: Operation, converters: Converters, api: str, has_results: bool, timeout_s: float | None
) -> OperationTool:
    answer, is_wrapped = _describe_answer(operation, converters["answer"]) if has_results else (None, False)
    terms = ToolDefinition(
        name=operation.name,
        description=_describe(operation),
        input_schema=_describe_arguments(operation, converters, REQUEST_LIMIT_BYTES),
        output_schema=answer,
        annotations={**_HINTS[operation.method], "openWorldHint": True},
        errors=(ErrorCode.UPSTREAM_UNAVAILABLE, ErrorCode.CREDENTIAL_REQUIRED, ErrorCode.LOGIN_REQUIRED),
        timeout_s=timeout_s,
        style=ResultStyle.PLAIN,
    )
    contract = None
    try:
        contract = contract_of(terms, plugin=PluginName(api))
    except ToolpostError as refusal:
        place = str(refusal.details.get("place", ""))
        if place.startswith("outputSchema"):
            # What the API answers is worth more than a description of it that cannot be checked.
            terms, is_wrapped = replace(terms, output_schema=None), False
        if place.startswith("inputSchema"):
            terms = replace(terms, input_schema=_describe_arguments(operation, converters, 0))
    if contract is None:
        try:
            contract = contract_of(terms, plugin=PluginName(api))
        except ToolpostError as refusal:
            raise Unusable(f"{refusal.details.get('place')}: {refusal.details.get('reason')}") from refusal
    listed = len(msgspec.json.encode(contract.definition))
    return OperationTool(
        operation=operation, terms=terms, is_wrapped=is_wrapped, tokens=-(-listed // CHARACTERS_PER_TOKEN)
    )


def _describe(operation: Operation) -> str:
    texts = ["Deprecated."] if operation.is_deprecated else []
    texts += [text for text in (operation.summary, operation.description) if text]
    if len(texts) > 1 and texts[-1].startswith(texts[-2].rstrip(".…")):
        del texts[-2]
    return "\n\n".join(texts) or operation.shown


def _describe_arguments(operation: Operation, converters: Converters, limit_bytes: int) -> JsonObject:
    is_upload = operation.body is not None and operation.body.kind == "multipart"
    converter = converters["upload" if is_upload else "request"]
    properties: JsonObject = {}
    required: list[Json] = []
    for parameter in operation.parameters:
        schema = converter.convert(parameter.schema)
        if (
            parameter.may_be_empty
            and schema.keys() & {"enum", "pattern", "minLength", "type"}
            and schema != {"type": "string"}
        ):
            schema = {"anyOf": [schema, {"const": ""}]}
        properties[parameter.key] = _add_description(schema, parameter.description)
        if parameter.is_required:
            required.append(parameter.key)
    if operation.body is not None:
        properties[BODY_KEY] = _describe_body(operation.body, converter)
        if operation.body.is_required:
            required.append(BODY_KEY)
    whole: JsonObject = {"type": "object", "properties": properties}
    if required:
        whole["required"] = required
    return converter.complete(whole, limit_bytes)


def _describe_body(body: Body, converter: Converter) -> JsonObject:
    if body.kind == "binary":
        return _add_description(FILE, body.description)
    if body.kind == "text":
        return _add_description({"type": "string", "description": f"Sent as {body.media_type}."}, body.description)
    return _add_description(converter.convert(body.schema), body.description)


def _add_description(schema: JsonObject, text: str) -> JsonObject:
    return {**schema, "description": shorten(text, DESCRIPTION_LIMIT)} if text.strip() else schema


def _describe_answer(operation: Operation, converter: Converter) -> tuple[JsonObject | None, bool]:
    """Return the schema of results, None if there is none, and whether answers are under `result`."""
    if not operation.answers:
        return None, False
    schemas = [converter.convert(schema) for schema in operation.answers]
    whole = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    complete = converter.complete(whole, ANSWER_LIMIT_BYTES)
    if not operation.may_be_empty and _is_object(complete, complete):
        return complete, False
    definitions = {"$defs": complete.pop("$defs")} if "$defs" in complete else {}
    if operation.may_be_empty:
        complete = {"anyOf": [complete, {"type": "null"}]}
    return {"type": "object", "properties": {RESULT_KEY: complete}, "required": [RESULT_KEY], **definitions}, True


def _is_object(schema: Json, root: JsonObject, depth: int = 0) -> bool:
    """Whether a schema accepts objects alone."""
    if not isinstance(schema, dict) or depth > 16:
        return False
    if "type" in schema:
        return bool(schema["type"] == "object")
    if isinstance(reference := schema.get("$ref"), str):
        return _is_object(root.get("$defs", {}).get(reference.removeprefix("#/$defs/")), root, depth + 1)
    if any(_is_object(branch, root, depth + 1) for branch in schema.get("allOf", ())):
        return True
    choices = schema.get("anyOf", ())
    return bool(choices) and all(_is_object(choice, root, depth + 1) for choice in choices)


Invoke = Callable[[OperationTool, JsonObject, Context], Awaitable[Any]]


def make_plugin(api: str, tools: Sequence[OperationTool], invoke: Invoke, *, version: str, description: str) -> Plugin:
    """Make the plugin of an API, whose tools call `invoke`."""

    def bind(tool: OperationTool) -> Tool:
        async def run(arguments: JsonObject, context: Context) -> Any:
            return await invoke(tool, arguments, context)

        return Tool(terms=tool.terms, run=run, is_async=True)

    return Plugin(api, version=version, description=description, tools=[bind(tool) for tool in tools])
