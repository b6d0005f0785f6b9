"""The words in a schema, apart from what it asserts."""

from collections.abc import Mapping

from toolpost.base.ids import Json
from toolpost.base.values import Path
from toolpost.contracts.parts import HOLDS_MANY, HOLDS_NAMED, HOLDS_ONE, pointer

TEXTS = frozenset({"title", "description", "$comment"})
NOTES = frozenset({"default", "examples", "example", "deprecated", "readOnly", "writeOnly"})
"""What a schema says without asserting it; defaults have a rule of their own."""


def without_texts(schema: Json) -> tuple[Json, dict[str, str]]:
    """Return the schema without its words, and the words by place."""
    texts: dict[str, str] = {}
    return _stripped(schema, (), texts), texts


def asserted(schema: Json) -> Json:
    """Return the schema without whatever a validator does not look at, as far as that is known."""
    if not isinstance(schema, dict):
        return schema
    kept = {word: value for word, value in schema.items() if word not in TEXTS | NOTES and not word.startswith("x-")}
    if schema.get("x-reserved") is True:
        # Ours: a reserved argument is refused.
        kept["x-reserved"] = True
    return {word: _asserted_below(word, value) for word, value in kept.items()}


def _asserted_below(keyword: str, value: Json) -> Json:
    if isinstance(value, Mapping) and keyword in HOLDS_NAMED:
        return {name: asserted(child) for name, child in value.items()}
    if isinstance(value, list) and keyword in HOLDS_MANY:
        return [asserted(child) for child in value]
    return asserted(value) if keyword in HOLDS_ONE else value


def _stripped(schema: Json, steps: Path, texts: dict[str, str]) -> Json:
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for keyword, value in schema.items():
        if keyword in TEXTS and isinstance(value, str):
            # Only here the place is written out: names may be long, and every schema below repeats them.
            texts[pointer((*steps, keyword))] = value
        else:
            kept[keyword] = _held(keyword, value, (*steps, keyword), texts)
    return kept


def _held(keyword: str, value: Json, steps: Path, texts: dict[str, str]) -> Json:
    if isinstance(value, Mapping) and keyword in HOLDS_NAMED:
        return {name: _stripped(child, (*steps, name), texts) for name, child in value.items()}
    if isinstance(value, list) and keyword in HOLDS_MANY:
        return [_stripped(child, (*steps, number), texts) for number, child in enumerate(value)]
    return _stripped(value, steps, texts) if keyword in HOLDS_ONE else value
