"""What a schema says without asserting it: defaults, examples, deprecation, and keywords that no validator knows."""

from collections.abc import Iterator

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import is_same_json
from toolpost.contracts.compatibility.changes import change_by
from toolpost.contracts.compatibility.judgement import Change
from toolpost.contracts.compatibility.sides import Node, Side
from toolpost.contracts.compatibility.texts import NOTES
from toolpost.contracts.parts import part_at, parts_of

_OWN_RULES = frozenset({"default", "deprecated"})


def note_changes(old: Json, new: Json, root: str, *, are_arguments: bool) -> Iterator[Change]:
    """Say which notes changed at the places that both schemas have."""
    one, other = Side(old), Side(new)
    if not isinstance(old, dict) or not isinstance(new, dict):
        return
    for part in parts_of(old):
        after = part_at(new, part.place)
        if isinstance(after, dict):
            before, after = _with_default(one, part.place, part.schema), _with_default(other, part.place, after)
            if are_arguments:
                yield from _default(before, after, root + part.place)
            yield from _notes(before, after, root + part.place, with_default=not are_arguments)


def _with_default(side: Side, place: str, schema: JsonObject) -> JsonObject:
    """Return a schema with the default of what it refers to, unless it has its own."""
    if "default" in schema or "$ref" not in schema:
        return schema
    target = side.target(Node(place, schema))
    has_one = target is not None and "default" in target.schema
    return {**schema, "default": target.schema["default"]} if target is not None and has_one else schema


def _default(old: JsonObject, new: JsonObject, place: str) -> Iterator[Change]:
    if ("default" in old) == ("default" in new) and _is_same(old.get("default"), new.get("default")):
        return
    rule = (
        "default-changed"
        if "default" in old and "default" in new
        else "default-added"
        if "default" in new
        else "default-removed"
    )
    name = place.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
    message = {
        "default-changed": f"`{name}` has another default",
        "default-added": f"`{name}` now states a default",
        "default-removed": f"`{name}` has no default any more",
    }[rule]
    yield change_by(
        f"input.{rule}",
        f"{place}/default" if "default" in new else place,
        message,
        affected=f"callers that leave out `{name}`",
        old=old.get("default", msgspec.UNSET),
        new=new.get("default", msgspec.UNSET),
    )


def _is_same(one: Json, other: Json) -> bool:
    # A caller who leaves it out cannot tell 1 from 1.0; from true it can.
    are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    return bool(one == other) if are_numbers else is_same_json(one, other)


def _notes(old: JsonObject, new: JsonObject, place: str, *, with_default: bool) -> Iterator[Change]:
    for word in sorted(old.keys() | new.keys()):
        is_note = word in NOTES or word.startswith("x-")
        if not is_note or is_same_json(old.get(word), new.get(word)):
            continue
        if word == "deprecated":
            yield change_by("wording.deprecated", f"{place}/{word}", old=old.get(word), new=new.get(word))
        elif word not in _OWN_RULES or with_default:
            message = f"`{word}` is not what it was"
            yield change_by("wording.note-changed", f"{place}/{word}", message, old=old.get(word), new=new.get(word))
