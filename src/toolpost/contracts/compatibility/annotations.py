"""The words in a schema, apart from what it asserts."""

from collections.abc import Mapping

from toolpost.base.ids import Json
from toolpost.base.values import Path
from toolpost.contracts.subschemas import ONE_SUBSCHEMA, SUBSCHEMA_LIST, SUBSCHEMA_MAP, to_pointer

TEXT_KEYWORDS = frozenset({"title", "description", "$comment"})
ANNOTATION_KEYWORDS = frozenset({"default", "examples", "example", "deprecated", "readOnly", "writeOnly"})
"""What a schema says without asserting it; defaults have a rule of their own."""


def split_texts(schema: Json) -> tuple[Json, dict[str, str]]:
    """Return the schema without its words, and the words by place."""
    texts: dict[str, str] = {}
    return _strip_object(schema, (), texts), texts


def strip_annotations(schema: Json) -> Json:
    """Return the schema without whatever a validator does not look at, as far as that is known."""
    if not isinstance(schema, dict):
        return schema
    kept = {
        word: value
        for word, value in schema.items()
        if word not in TEXT_KEYWORDS | ANNOTATION_KEYWORDS and not word.startswith("x-")
    }
    if schema.get("x-reserved") is True:
        # Ours: a reserved argument is refused.
        kept["x-reserved"] = True
    return {word: _strip_below(word, value) for word, value in kept.items()}


def _strip_below(keyword: str, value: Json) -> Json:
    if isinstance(value, Mapping) and keyword in SUBSCHEMA_MAP:
        return {name: strip_annotations(child) for name, child in value.items()}
    if isinstance(value, list) and keyword in SUBSCHEMA_LIST:
        return [strip_annotations(child) for child in value]
    return strip_annotations(value) if keyword in ONE_SUBSCHEMA else value


def _strip_object(schema: Json, steps: Path, texts: dict[str, str]) -> Json:
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for keyword, value in schema.items():
        if keyword in TEXT_KEYWORDS and isinstance(value, str):
            # Only here the place is written out: names may be long, and every schema below repeats them.
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
