"""What a schema says without asserting it (JSON Schema's *annotations*): texts, defaults, examples, deprecation."""

from collections.abc import Mapping

from toolpost.base.ids import Json
from toolpost.base.values import Path
from toolpost.contracts.subschemas import ONE_SUBSCHEMA, SUBSCHEMA_LIST, SUBSCHEMA_MAP, map_subschemas, to_pointer

TEXT_KEYWORDS = frozenset({"title", "description", "$comment"})
ANNOTATION_KEYWORDS = frozenset({"default", "examples", "example", "deprecated", "readOnly", "writeOnly"})
"""Annotations other than texts; `default` has rules of its own."""


def split_texts(schema: Json) -> tuple[Json, dict[str, str]]:
    """Return the schema without its texts, and the texts by place."""
    texts: dict[str, str] = {}
    return _strip_object(schema, (), texts), texts


def strip_annotations(schema: Json) -> Json:
    """Return the schema without the keywords that a validator is known to ignore."""
    if not isinstance(schema, dict):
        return schema
    kept = {
        word: value
        for word, value in schema.items()
        if word not in TEXT_KEYWORDS | ANNOTATION_KEYWORDS and not word.startswith("x-")
    }
    if schema.get("x-reserved") is True:
        # Toolpost's own keyword, which does assert: a reserved argument is refused.
        kept["x-reserved"] = True
    return map_subschemas(kept, strip_annotations)


def _strip_object(schema: Json, steps: Path, texts: dict[str, str]) -> Json:
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for keyword, value in schema.items():
        if keyword in TEXT_KEYWORDS and isinstance(value, str):
            # The place is written out only here: names may be long, and every schema below would repeat them.
            texts[to_pointer((*steps, keyword))] = value
        else:
            kept[keyword] = _strip_value(keyword, value, (*steps, keyword), texts)
    return kept


def _strip_value(keyword: str, value: Json, steps: Path, texts: dict[str, str]) -> Json:
    if isinstance(value, Mapping) and keyword in SUBSCHEMA_MAP:
        return {name: _strip_object(child, (*steps, name), texts) for name, child in value.items()}
    if isinstance(value, list) and keyword in SUBSCHEMA_LIST:
        return [_strip_object(child, (*steps, number), texts) for number, child in enumerate(value)]
    return _strip_object(value, steps, texts) if keyword in ONE_SUBSCHEMA else value
