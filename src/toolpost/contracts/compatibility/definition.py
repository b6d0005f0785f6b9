"""A tool's whole definition as a lock keeps it: what is listed, and what is promised beside it."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec

from toolpost.base.ids import META_KEY, Digest, Json, JsonObject
from toolpost.contracts.compatibility.annotations import split_texts
from toolpost.contracts.contract import Contract, Keyed
from toolpost.contracts.digest import canonical_digest
from toolpost.contracts.subschemas import rewrite_boolean_bounds

_LISTED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_ALWAYS = ("name", "inputSchema", "schemaVersion")
_NOTHING: JsonObject = {"type": "object", "properties": {}}


class Digests(msgspec.Struct, frozen=True, kw_only=True):
    """Names for three sides of a definition, each over RFC 8785 JSON: one that moved says where to look."""

    meaning: Digest
    """All that a caller can rely on: everything but the words and `toolingVersion`."""
    schema: Digest
    """Both schemas without their texts."""
    wording: Digest
    """Title, description and the texts inside the schemas."""


class Definition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One tool, whole. Its JSON is flat: an MCP definition with our facts beside it."""

    name: str
    title: str | None = None
    description: str = ""
    input_schema: JsonObject | bool = msgspec.field(default_factory=lambda: dict(_NOTHING))
    output_schema: JsonObject | bool | None = None
    annotations: JsonObject = {}
    schema_version: int = 1
    tooling_version: str = ""
    error_codes: tuple[str, ...] = ()
    timeout_ms: int | None = None
    """The tool's own time limit, None where it promises none."""
    cancellation: str | None = None
    """What a cancelled call does, in its author's words; None where nothing beyond `CANCELLED` is promised."""
    concurrency: str = "parallel"
    """`parallel`, `serial`, or `keyed:ARGUMENT`."""
    aliases: tuple[str, ...] = ()
    others: JsonObject = {}
    """What the definition says besides (`icons`, `execution` and the fields of the next revision), without `_meta`."""
    meta: JsonObject = msgspec.field(default_factory=dict, name="_meta")
    """What `_meta` has beside our facts. It promises nothing; a model may read it."""

    @classmethod
    def from_listed(cls, listed: Mapping[str, Any], *, name: str | None = None) -> Self:
        """Read an entry of `tools/list`; our facts, if it has them, are under our key of `_meta`."""
        meta = _object(listed.get("_meta"))
        facts = _object(meta.get(META_KEY))
        return cls(
            name=name or str(listed.get("name", "")),
            title=_text(listed.get("title")),
            description=_text(listed.get("description")) or "",
            input_schema=_schema(listed.get("inputSchema"), _NOTHING),
            output_schema=_schema(listed.get("outputSchema"), None),
            annotations=_object(listed.get("annotations")),
            others={key: value for key, value in listed.items() if key not in _LISTED and key != "_meta"},
            meta={key: value for key, value in meta.items() if key != META_KEY},
            **_read_facts(facts),
        )

    @classmethod
    def from_contract(cls, contract: Contract) -> Self:
        """Read what a contract lists and promises."""
        terms = contract.terms
        is_upstream = contract.upstream_definition is not None
        return msgspec.structs.replace(
            cls.from_listed(contract.definition),
            schema_version=terms.schema_version,
            tooling_version=terms.tooling_version,
            error_codes=tuple(sorted(code.value for code in terms.errors)),
            # A server's limit is its operator's setting, not the tool's promise; nor is our default one.
            timeout_ms=None if is_upstream or terms.timeout_s is None else round(terms.timeout_s * 1000),
            concurrency=_spell(contract),
            aliases=tuple(sorted(contract.aliases)),
        )

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Read what `to_json` wrote; `msgspec.ValidationError` says what is wrong with anything else."""
        return msgspec.convert(value, cls)

    def to_json(self) -> JsonObject:
        """Write it as plain JSON; what says nothing is left out, the input schema and the version never are."""
        written: JsonObject = {}
        for name, key in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            value = getattr(self, name)
            if (value is not None and value not in ("", (), {})) or key in _ALWAYS:
                written[key] = list(value) if isinstance(value, tuple) else value
        return written

    def to_listed(self) -> JsonObject:
        """Write it with its other fields where a server has them: the document that places (JSON Pointers) are in."""
        return self.others | {key: value for key, value in self.to_json().items() if key != "others"}

    @property
    def digests(self) -> Digests:
        """Name the three sides of this definition."""
        takes, takes_texts = split_texts(self.input_schema)
        gives, gives_texts = split_texts(self.output_schema)
        schema = {"inputSchema": takes, "outputSchema": gives}
        unsaid = {"title": None, "description": "", "toolingVersion": "", **schema}
        return Digests(
            meaning=canonical_digest(msgspec.structs.replace(self, meta={}).to_json() | unsaid),
            schema=canonical_digest(schema),
            wording=canonical_digest(
                {"title": self.title, "description": self.description, "input": takes_texts, "output": gives_texts}
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
    """Return those of our facts that are well formed; a server may write anything under our key."""
    version, tooling = facts.get("schemaVersion"), facts.get("toolingVersion")
    known: dict[str, Any] = {}
    if isinstance(version, int) and not isinstance(version, bool) and version >= 1:
        known["schema_version"] = version
    if isinstance(tooling, str):
        known["tooling_version"] = tooling
    for key, word in (("errorCodes", "error_codes"), ("aliases", "aliases")):
        if isinstance(names := facts.get(key), Sequence) and all(isinstance(name, str) for name in names):
            known[word] = tuple(sorted(names))
    return known


def _spell(contract: Contract) -> str:
    concurrency = contract.terms.concurrency
    return f"keyed:{concurrency.argument}" if isinstance(concurrency, Keyed) else concurrency
