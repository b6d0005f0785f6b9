"""A tool's whole definition as a lock keeps it: the listed fields, and further promises.

The instructions and the skills of a server are definitions too, so that they are locked, compared and scanned as the
descriptions of tools are.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import msgspec

from toolpost.base.ids import META_KEY, Digest, Json, JsonObject, ToolName
from toolpost.contracts.apps import SEPARATOR, select_app
from toolpost.contracts.contract import TEXT, Contract, describe_concurrency
from toolpost.contracts.digest import canonical_digest
from toolpost.contracts.document import rewrite_boolean_bounds, split_texts
from toolpost.contracts.skills import DYNAMIC, MANIFEST, SCHEME

_LISTED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_ALWAYS = ("name", "inputSchema", "schemaVersion")
_NOTHING: JsonObject = {"type": "object", "properties": {}}


class Digests(msgspec.Struct, frozen=True, kw_only=True):
    """Digests (RFC 8785) of three aspects of a definition: which one changed says where to look."""

    meaning: Digest
    """Everything a caller can rely on: all but the texts and `toolingVersion`."""
    schema: Digest
    """Both schemas without their texts."""
    wording: Digest
    """Title, description and the texts inside the schemas."""


class Definition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One tool. Its JSON is flat: an MCP definition with Toolpost's own facts beside it."""

    name: str
    title: str | None = None
    description: str = ""
    input_schema: JsonObject | bool = msgspec.field(default_factory=lambda: dict(_NOTHING))
    output_schema: JsonObject | bool | None = None
    result_format: str | None = None
    """`text` if the text of a result is the string that the tool returns; None if it is JSON."""
    annotations: JsonObject = {}
    schema_version: int = 1
    """Raised by the author when callers must notice a change."""
    tooling_version: str = ""
    """The version of the code behind the tool; promises nothing."""
    error_codes: tuple[str, ...] = ()
    timeout_ms: int | None = None
    """The tool's own time limit; None if it promises none."""
    cancellation: str | None = None
    """What a cancelled call does, in its author's words; None if nothing beyond `CANCELLED` is promised."""
    concurrency: str = "parallel"
    """`parallel`, `serial`, or `keyed:ARGUMENT`."""
    aliases: tuple[str, ...] = ()
    others: JsonObject = {}
    """Further fields of the definition (`icons`, `execution`, those of later revisions), without `_meta`."""
    meta: JsonObject = msgspec.field(default_factory=dict, name="_meta")
    """`_meta` without Toolpost's own key. It promises nothing but `app`; a model may read it."""

    @property
    def app(self) -> JsonObject:
        """What `_meta` says about the tool's MCP App: who shows its results, and who may call it."""
        return select_app(self.meta, self.name.partition(SEPARATOR)[0])

    @classmethod
    def from_listed(cls, listed: Mapping[str, Any], *, name: str | None = None) -> Self:
        """Read an entry of `tools/list`, with Toolpost's facts from `_meta` if it has them."""
        meta = _object(listed.get("_meta"))
        facts = _object(meta.get(META_KEY))
        return cls(
            name=name or str(listed.get("name", "")),
            title=_text(listed.get("title")),
            description=_text(listed.get("description")) or "",
            input_schema=_schema(listed.get("inputSchema"), _NOTHING),
            # What MCP cannot list is promised all the same.
            output_schema=_schema(listed.get("outputSchema"), _schema(facts.get("resultSchema"), None)),
            annotations=_object(listed.get("annotations")),
            others={key: value for key, value in listed.items() if key not in _LISTED and key != "_meta"},
            meta={key: value for key, value in meta.items() if key != META_KEY},
            **_read_facts(facts),
        )

    @classmethod
    def from_contract(cls, contract: Contract) -> Self:
        terms = contract.terms
        is_upstream = contract.upstream_definition is not None
        return msgspec.structs.replace(
            cls.from_listed(contract.definition),
            schema_version=terms.schema_version,
            tooling_version=terms.tooling_version,
            error_codes=tuple(sorted(code.value for code in terms.errors)),
            # A server's limit is its operator's setting, not the tool's promise; nor is our default one.
            timeout_ms=None if is_upstream or terms.timeout_s is None else round(terms.timeout_s * 1000),
            concurrency=describe_concurrency(terms.concurrency),
            aliases=tuple(sorted(contract.aliases)),
        )

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Read what `to_json` wrote; raises `msgspec.ValidationError`."""
        return msgspec.convert(value, cls)

    def to_json(self) -> JsonObject:
        """Return plain JSON; empty fields are left out, except name, input schema and version."""
        written: JsonObject = {}
        for name, key in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, name)
            if (value is not None and value not in ("", (), {})) or key in _ALWAYS:
                written[key] = list(value) if isinstance(value, tuple) else value
        return written

    def to_listed(self) -> JsonObject:
        """Return the definition with `others` where a server has them: the document that places point into."""
        return self.others | {key: value for key, value in self.to_json().items() if key != "others"}

    @property
    def digests(self) -> Digests:
        input_schema, input_texts = split_texts(self.input_schema)
        output_schema, output_texts = split_texts(self.output_schema)
        schema = {"inputSchema": input_schema, "outputSchema": output_schema}
        without_wording = {"title": None, "description": "", "toolingVersion": "", **schema}
        return Digests(
            # `_meta` promises nothing, and a server may change it with every start.
            meaning=canonical_digest(msgspec.structs.replace(self, meta={}).to_json() | without_wording),
            schema=canonical_digest(schema),
            wording=canonical_digest(
                {"title": self.title, "description": self.description, "input": input_texts, "output": output_texts}
            ),
        )


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def _schema(value: Json, default: Json) -> Json:
    if isinstance(value, dict):
        return rewrite_boolean_bounds(value)
    return value if isinstance(value, bool) else default


def _read_facts(facts: JsonObject) -> dict[str, Any]:
    """Return the well-formed facts; a server may write anything under our key."""
    version, tooling = facts.get("schemaVersion"), facts.get("toolingVersion")
    known: dict[str, Any] = {}
    if isinstance(version, int) and not isinstance(version, bool) and version >= 1:
        known["schema_version"] = version
    if isinstance(tooling, str):
        known["tooling_version"] = tooling
    if facts.get("resultFormat") == TEXT:
        known["result_format"] = TEXT
    for key, word in (("errorCodes", "error_codes"), ("aliases", "aliases")):
        if isinstance(names := facts.get(key), Sequence) and all(isinstance(name, str) for name in names):
            known[word] = tuple(sorted(names))
    return known


# Texts of a server that are no tools: their names have a colon, which no tool's name has.

_SUFFIX: Final = ":instructions"
_SKILLS: Final = ":skills/"


def is_tool_name(name: str) -> bool:
    """Whether a definition of this name is that of a tool: not of instructions, nor of a skill."""
    return ":" not in name


def name_instructions(server: str) -> ToolName:
    """Return the name under which a server's instructions are locked, such as `weather:instructions`."""
    return ToolName(f"{server}{_SUFFIX}")


def find_server_of_instructions(name: str) -> str | None:
    """Return the server whose instructions have this name; None for the name of a tool."""
    return name.removesuffix(_SUFFIX) if name.endswith(_SUFFIX) else None


def define_instructions(server: str, text: str) -> Definition:
    return Definition(name=name_instructions(server), description=text)


def name_skill(server: str, uri: str) -> ToolName:
    """Return the name under which a server's skill is locked: `desk:skills/refunds` for `skill://refunds/SKILL.md`."""
    return ToolName(f"{server}{_SKILLS}{uri.removeprefix(SCHEME).removesuffix(f'/{MANIFEST}')}")


def is_skill_name(name: str) -> bool:
    return _SKILLS in name


def define_skill(server: str, entry: JsonObject) -> Definition:
    """Return a valid entry of a server's `skills/list` as a definition: its frontmatter, and the digest of every file."""
    root, files, frontmatter = entry["uri"].removesuffix(MANIFEST), entry["resources"], entry["frontmatter"]
    return Definition(
        name=name_skill(server, entry["uri"]),
        description=frontmatter["description"],
        others={
            "frontmatter": {key: value for key, value in frontmatter.items() if key != "description"},
            "resources": files
            if files == DYNAMIC
            else {file["uri"].removeprefix(root): file["digest"] for file in files},
        },
    )
