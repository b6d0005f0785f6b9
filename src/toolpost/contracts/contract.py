"""A contract: the promise of a tool, compiled once and enforced on every call.

`contract_of` compiles what a plugin's author wrote (`ToolDefinition`), `contract_of_upstream` what a server sent. Both raise
`ContractRefused` for what could not be enforced. Validation itself is left to `schema`, explanations to `issues`.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import msgspec

from toolpost.base.ids import META_KEY, Digest, Json, JsonObject, PluginName, ToolName
from toolpost.contracts.apps import has_app, is_visible_to, qualify_definition, qualify_meta
from toolpost.contracts.closing import close_schema
from toolpost.contracts.digest import canonical_digest, quick_digest
from toolpost.contracts.document import rewrite_boolean_bounds
from toolpost.contracts.envelope import ResultStyle, wrap_output_schema
from toolpost.contracts.errors import ContractRefused, ErrorCode
from toolpost.contracts.issues import Issue, find_issues
from toolpost.contracts.schema import (
    Schema,
    SchemaLimits,
    SchemaProblem,
    as_object_schema,
    check_bounds,
    compile_schema,
)

DEFAULT_TIMEOUT_S = 60.0
TEXT = "text"
"""The format of results that are sent as the string that they are; all others are JSON."""
NAME_LIMIT = 64


_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PLUGIN_NAME = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")


@dataclass(frozen=True)
class Keyed:
    """Calls with equal values of this argument run one after another; all others run in parallel."""

    argument: str


Concurrency = Literal["parallel", "serial"] | Keyed

KnownLimits = tuple[SchemaLimits, SchemaLimits | None]
"""The limits of the schemas of a definition, of its arguments and its result."""


@dataclass(frozen=True, kw_only=True)
class ToolDefinition:
    """A contract as its author wrote it, before it is checked."""

    name: str
    input_schema: JsonObject
    output_schema: JsonObject | None = None
    result_schema: JsonObject | None = None
    """Of a plain result that MCP cannot list, because it is no object; it is enforced, locked and judged all the same."""
    title: str | None = None
    description: str = ""
    schema_version: int = 1
    tooling_version: str = ""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    errors: tuple[ErrorCode, ...] = ()
    timeout_s: float | None = None
    concurrency: Concurrency = "parallel"
    style: ResultStyle = ResultStyle.ENVELOPE
    icons: tuple[JsonObject, ...] = ()
    """As MCP writes them."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Listed in the tool's `_meta`, beside what Toolpost adds."""


@dataclass(frozen=True, kw_only=True)
class Contract:
    """A listed and enforced definition. Make one with `contract_of` or `contract_of_upstream`."""

    name: ToolName
    terms: ToolDefinition
    arguments_schema: Schema
    result_schema: Schema | None
    timeout_s: float
    aliases: tuple[ToolName, ...]
    """Former names, which still answer and are not listed."""
    upstream_definition: JsonObject | None = None
    """The definition as the upstream server sent it: listed unchanged except for its name, our `_meta`, and URIs of apps."""

    @property
    def limits(self) -> KnownLimits:
        """What is remembered of compiling it."""
        return self.arguments_schema.limits, None if self.result_schema is None else self.result_schema.limits

    @property
    def is_upstream(self) -> bool:
        """Whether the tool is a server's, whose results have a form of their own."""
        return self.upstream_definition is not None

    def find_argument_issues(self, arguments: Json) -> list[Issue]:
        """Return what is wrong with arguments; an empty list if nothing is.

        The time is not bounded: do not call it on the event loop with a schema from outside.
        """
        return find_issues(self.arguments_schema, arguments)

    @property
    def annotations(self) -> Mapping[str, Any]:
        """The tool's hints, such as `readOnlyHint`. Those of a server are claims, and may be wrong."""
        if self.upstream_definition is None:
            return self.terms.annotations
        claimed = self.upstream_definition.get("annotations")
        return claimed if isinstance(claimed, dict) else {}

    @cached_property
    def has_app(self) -> bool:
        """Whether an MCP App shows its results, or calls it."""
        return has_app(self.definition)

    @cached_property
    def is_for_models(self) -> bool:
        """Whether a model may see it; False for a tool that only apps call."""
        return is_visible_to("model", self.definition)

    @cached_property
    def is_for_apps(self) -> bool:
        """Whether the app of its server may call it."""
        return is_visible_to("app", self.definition)

    @cached_property
    def answers_text(self) -> bool:
        """Whether the text of an answer is the string that the tool returns, rather than JSON."""
        schema = self.terms.result_schema
        return self.terms.output_schema is None and schema is not None and schema.get("type") == "string"

    @cached_property
    def definition(self) -> JsonObject:
        """The tool as `tools/list` shows it."""
        terms = self.terms
        if self.upstream_definition is not None:
            return self.upstream_definition | {
                "name": self.name,
                "_meta": (self.upstream_definition.get("_meta") or {}) | self._meta_facts,
            }
        listed: JsonObject = {"name": self.name}
        if terms.title:
            listed["title"] = terms.title
        if terms.description:
            listed["description"] = terms.description
        listed["inputSchema"] = self.arguments_schema.raw
        if self.result_schema is not None and terms.output_schema is not None:
            listed["outputSchema"] = wrap_output_schema(self.result_schema.raw, terms.style)
        if terms.annotations:
            listed["annotations"] = dict(terms.annotations)
        if terms.icons:
            listed["icons"] = list(terms.icons)
        listed["_meta"] = {**terms.meta, **self._meta_facts}
        return listed

    @property
    def _meta_facts(self) -> JsonObject:
        terms = self.terms
        facts: JsonObject = {"schemaVersion": terms.schema_version, "toolingVersion": terms.tooling_version}
        if self.aliases:
            facts["aliases"] = list(self.aliases)
        if terms.output_schema is None and self.result_schema is not None:
            facts["resultSchema"] = self.result_schema.raw
        if self.answers_text:
            facts["resultFormat"] = TEXT
        return {META_KEY: facts}

    @cached_property
    def mirrors_arguments(self) -> bool:
        """Whether the schema mirrors arguments into HTTP headers (`x-mcp-header`)."""
        return b'"x-mcp-header"' in msgspec.json.encode(self.arguments_schema.raw)

    @cached_property
    def listing_digest(self) -> Digest:
        """Identifies what is listed: different whenever a client would see a difference."""
        return quick_digest(self.definition)

    @cached_property
    def digest(self) -> Digest:
        """Identifies the whole contract: what is listed, and what is promised beside it."""
        terms = self.terms
        return canonical_digest(
            {
                "definition": self.definition,
                "aliases": list(self.aliases),
                "errors": [code.value for code in terms.errors],
                "timeoutMs": round(self.timeout_s * 1000),
                "concurrency": describe_concurrency(terms.concurrency),
            }
        )


def contract_of(
    terms: ToolDefinition, *, plugin: PluginName, default_timeout_s: float = DEFAULT_TIMEOUT_S, is_bare: bool = False
) -> Contract:
    """Compile what an author wrote; raises `ContractRefused`, which names plugin, tool and place.

    `is_bare` leaves the plugin's name out of the tool's name.
    """
    name = _check_name(terms.name, plugin, is_bare=is_bare)
    _check_terms(terms, plugin)
    arguments_schema = _compile_for_tool(terms.input_schema, "inputSchema", terms, plugin, close=True)
    result_schema = None
    if terms.output_schema is not None:
        # Before 2026-07-28 the root of a published output schema must be an object; an envelope always is one.
        is_plain = terms.style is ResultStyle.PLAIN
        result_schema = _compile_for_tool(terms.output_schema, "outputSchema", terms, plugin, root_object=is_plain)
    elif terms.result_schema is not None:
        result_schema = _compile_for_tool(terms.result_schema, "resultSchema", terms, plugin, root_object=False)
    if terms.meta and not is_bare:
        terms = replace(terms, meta=qualify_meta(plugin, dict(terms.meta)))
    return Contract(
        name=name,
        terms=terms,
        arguments_schema=arguments_schema,
        result_schema=result_schema,
        timeout_s=terms.timeout_s or default_timeout_s,
        aliases=tuple(_check_name(alias, plugin, is_bare=is_bare) for alias in terms.aliases),
    )


def contract_of_upstream(
    definition: JsonObject,
    *,
    server: PluginName,
    name: ToolName,
    closes: bool,
    version: str,
    timeout_s: float,
    known: KnownLimits | None = None,
) -> Contract:
    """Compile a definition from a server; raises `ContractRefused`, which names server, tool and place.

    With `known`, it was compiled before by the same rules, and is not checked again.
    """
    known_arguments, known_result = known or (None, None)
    tool = str(definition.get("name", ""))
    terms = ToolDefinition(
        name=tool,
        input_schema=definition.get("inputSchema"),  # type: ignore[arg-type]  # anything a server sends; compiling checks it
        output_schema=definition.get("outputSchema"),
        description=str(definition.get("description") or ""),
        schema_version=_parse_version(definition),
        tooling_version=version,
        style=ResultStyle.PLAIN,
    )
    arguments_schema = _compile_for_tool(
        terms.input_schema, "inputSchema", terms, server, close=closes, kind="server", known=known_arguments
    )
    result_schema = None
    if terms.output_schema is not None:
        result_schema = _compile_for_tool(
            terms.output_schema, "outputSchema", terms, server, root_object=False, kind="server", known=known_result
        )
    # Unchanged except for what clients insist on (a root's type, numeric bounds) and the closing that was configured.
    upstream_definition = (
        qualify_definition(server, definition)
        | {"inputSchema": arguments_schema.raw}
        | ({} if result_schema is None else {"outputSchema": result_schema.raw})
    )
    return Contract(
        name=name,
        terms=terms,
        arguments_schema=arguments_schema,
        result_schema=result_schema,
        timeout_s=timeout_s,
        aliases=(),
        upstream_definition=upstream_definition,
    )


def _parse_version(definition: JsonObject) -> int:
    """Return the `schemaVersion` that a server gives its tool, in the definition or under our `_meta` key; otherwise 1."""
    meta = definition.get("_meta")
    facts = meta.get(META_KEY) if isinstance(meta, dict) else None
    stated = (definition.get("schemaVersion"), facts.get("schemaVersion") if isinstance(facts, dict) else None)
    return next((v for v in stated if isinstance(v, int) and not isinstance(v, bool) and v >= 1), 1)


def check_plugin_name(name: str) -> PluginName:
    """Return the name, or raise `ContractRefused` if tool names with it would be ambiguous."""
    if not _PLUGIN_NAME.fullmatch(name):
        raise ContractRefused(
            f"plugin `{name}`: a plugin's name may contain letters, digits, `-` and single `_`",
            plugin=name,
            place="name",
        )
    return PluginName(name)


def _check_name(name: str, plugin: PluginName, *, is_bare: bool = False) -> ToolName:
    full = f"{plugin}__{name}"
    if not name or not _NAME.fullmatch(full):
        reason = "clients accept only letters, digits, `_` and `-` in a tool's name"
    elif len(full) > NAME_LIMIT:
        reason = f"`{full}` has {len(full)} characters, and several clients stop at {NAME_LIMIT}"
    else:
        return ToolName(name if is_bare else full)
    raise _make_refusal(plugin, name, "name", reason)


def _check_terms(terms: ToolDefinition, plugin: PluginName) -> None:
    # Declared as `object`: an author may have written anything, whatever the hints say.
    description: object = terms.description
    if not isinstance(description, str) or not description.strip():
        reason = (
            "it has no description, by which a model decides when to call it; write a docstring, or give `description`"
        )
        raise _make_refusal(plugin, terms.name, "description", reason)
    version: object = terms.schema_version
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _make_refusal(plugin, terms.name, "schemaVersion", "a schema version is a whole number from 1")
    limit = terms.timeout_s
    if limit is not None and not (math.isfinite(limit) and limit > 0):
        raise _make_refusal(plugin, terms.name, "timeout_s", "a time limit is a number of seconds above 0")
    concurrency: object = terms.concurrency
    if not isinstance(concurrency, Keyed) and concurrency not in ("parallel", "serial"):
        raise _make_refusal(plugin, terms.name, "concurrency", 'concurrency is "parallel", "serial" or Keyed(argument)')
    if isinstance(concurrency, Keyed):
        schema: object = terms.input_schema
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(properties, dict) or concurrency.argument not in properties:
            raise _make_refusal(plugin, terms.name, "concurrency", f"there is no argument `{concurrency.argument}`")


def _compile_for_tool(
    raw: JsonObject,
    place: str,
    terms: ToolDefinition,
    plugin: PluginName,
    *,
    root_object: bool = True,
    close: bool = False,
    kind: str = "plugin",
    known: SchemaLimits | None = None,
) -> Schema:
    """Compile a schema as it is listed: with what clients insist on, and closed."""
    try:
        # First: what is too large must not even be walked.
        if known is None:
            check_bounds(raw)
        if isinstance(raw, dict):
            raw = rewrite_boolean_bounds(as_object_schema(raw) if root_object else raw)
            # A schema too broken to be closed is refused when it is compiled, with place and reason.
            with suppress(AttributeError, KeyError, RecursionError, TypeError, ValueError):
                raw = close_schema(raw) if close else raw
        return compile_schema(raw, root_object=root_object, known=known)
    except SchemaProblem as problem:
        raise _make_refusal(plugin, terms.name, f"{place}{problem.place}", problem.reason, kind=kind) from problem


def _make_refusal(plugin: PluginName, tool: str, place: str, reason: str, *, kind: str = "plugin") -> ContractRefused:
    return ContractRefused(
        f"{kind} `{plugin}`, tool `{tool}`, {place}: {reason}",
        plugin=plugin,
        tool=tool,
        place=place,
        reason=reason,
    )


def describe_concurrency(concurrency: Concurrency) -> str:
    """Return `parallel`, `serial` or `keyed:ARGUMENT`, as contracts and locks write it."""
    return f"keyed:{concurrency.argument}" if isinstance(concurrency, Keyed) else concurrency
