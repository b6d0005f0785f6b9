"""Changes outside of schemas' assertions: names, hints, error codes, limits and versions; annotations of schemas; wording."""

import difflib
import re
from collections.abc import Iterator

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import is_same_json
from toolpost.contracts.compatibility.containment import ComparedSchema, Node
from toolpost.contracts.compatibility.cost import Budget
from toolpost.contracts.compatibility.definition import Definition
from toolpost.contracts.compatibility.rules import Change, make_change
from toolpost.contracts.document import ANNOTATION_KEYWORDS, resolve_pointer, split_texts, to_pointer, walk_subschemas

# The harmless value of each hint, and MCP's default where it is missing.
_HARMLESS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_DEFAULT_HINTS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


def compare_tool_fields(old: Definition, new: Definition) -> Iterator[Change]:
    """Yield the changes that concern neither schemas nor wording."""
    yield from _compare_names(old, new)
    yield from _compare_hints(old, new)
    yield from _compare_errors(old, new)
    yield from _compare_limits(old, new)
    yield from _compare_versions(old, new)
    if old.result_format != new.result_format:
        yield make_change(
            "output.format-changed",
            "/resultFormat",
            f"the text of a result is now {'the string itself' if new.result_format else 'JSON'}",
            affected="callers that read the text of a result",
            old=old.result_format,
            new=new.result_format,
        )
    for key in sorted(old.others.keys() | new.others.keys()):
        one, other = old.others.get(key), new.others.get(key)
        if one != other:
            yield make_change("tool.field-changed", to_pointer((key,)), f"`{key}` has changed", old=one, new=other)
    for key in sorted(old.app.keys() | new.app.keys()):
        one, other = old.app.get(key), new.app.get(key)
        if one != other:
            yield make_change(
                "tool.app-changed",
                to_pointer(("_meta", key)),
                f"`{key}` of its `_meta` has changed",
                old=one,
                new=other,
            )


def _compare_names(old: Definition, new: Definition) -> Iterator[Change]:
    if old.name != new.name:
        still_answers = old.name in new.aliases
        rule = "tool.renamed-with-alias" if still_answers else "tool.renamed"
        how = "and the old name still answers" if still_answers else "and the old name is no alias"
        message = f"`{old.name}` is now `{new.name}`, {how}"
        yield make_change(rule, "/name", message, affected=_by_name(old.name), old=old.name, new=new.name)
    answering = {new.name, *new.aliases}
    for alias in sorted(set(old.aliases) - answering):
        yield make_change(
            "tool.alias-removed", "/aliases", f"`{alias}` no longer answers", affected=_by_name(alias), old=alias
        )
    for alias in sorted(set(new.aliases) - {old.name, *old.aliases}):
        yield make_change("tool.alias-added", "/aliases", f"`{alias}` answers too", new=alias)


def _by_name(name: str) -> str:
    return f"callers that call `{name}`"


def _compare_hints(old: Definition, new: Definition) -> Iterator[Change]:
    for key in sorted(old.annotations.keys() | new.annotations.keys()):
        one, other = old.annotations.get(key), new.annotations.get(key)
        place = to_pointer(("annotations", key))
        if key not in _HARMLESS:
            if one != other:
                rule = "wording.title-changed" if key == "title" else "annotations.changed"
                yield make_change(rule, place, f"the annotation `{key}` has changed", old=one, new=other)
            continue
        # A hint that is missing has a value all the same: to state it changes nothing.
        one, other = (_DEFAULT_HINTS[key] if hint is None else hint for hint in (one, other))
        if one == other:
            continue
        message = f"`{key}` is now {str(other).lower() if isinstance(other, bool) else repr(other)[:40]}"
        rule, affected = "annotations.strengthened", "clients that ask before they run it"
        if one is _HARMLESS[key]:
            rule, affected = "annotations.weakened", f"clients that rely on `{key}` being {str(one).lower()}"
        yield make_change(rule, place, message, affected=affected, old=one, new=other)


def _compare_errors(old: Definition, new: Definition) -> Iterator[Change]:
    for code in sorted(set(new.error_codes) - set(old.error_codes)):
        message = f"the tool may now fail with `{code}`"
        yield make_change(
            "errors.code-added", "/errorCodes", message, affected="callers that branch on error codes", new=code
        )
    for code in sorted(set(old.error_codes) - set(new.error_codes)):
        message = f"the tool no longer fails with `{code}`"
        yield make_change(
            "errors.code-removed", "/errorCodes", message, affected=f"callers that wait for `{code}`", old=code
        )


def _compare_limits(old: Definition, new: Definition) -> Iterator[Change]:
    one, other = old.timeout_ms, new.timeout_ms
    if one != other:
        is_shorter = other is not None and (one is None or other < one)
        rule = "limits.timeout-shortened" if is_shorter else "limits.timeout-lengthened"
        message = f"the time limit is {_describe_timeout(other)}, and was {_describe_timeout(one)}"
        affected = f"callers whose calls take over {other:,} ms" if is_shorter else "callers that wait for the limit"
        yield make_change(rule, "/timeoutMs", message, affected=affected, old=one, new=other)
    if old.cancellation != new.cancellation:
        yield make_change(
            "limits.cancellation-changed",
            "/cancellation",
            affected="callers that cancel",
            old=old.cancellation,
            new=new.cancellation,
        )
    if old.concurrency != new.concurrency:
        message = f"calls are `{new.concurrency}`, and were `{old.concurrency}`"
        affected = "callers that call it many times at once"
        yield make_change(
            "limits.concurrency-changed",
            "/concurrency",
            message,
            affected=affected,
            old=old.concurrency,
            new=new.concurrency,
        )


def _describe_timeout(timeout_ms: int | None) -> str:
    return "not set" if timeout_ms is None else f"{timeout_ms:,} ms"


def _compare_versions(old: Definition, new: Definition) -> Iterator[Change]:
    one, other = old.schema_version, new.schema_version
    if one != other:
        rule = "version.raised" if other > one else "version.lowered"
        yield make_change(rule, "/schemaVersion", f"`schemaVersion` is {other}, and was {one}", old=one, new=other)
    if old.tooling_version != new.tooling_version:
        yield make_change(
            "version.tooling-changed", "/toolingVersion", old=old.tooling_version, new=new.tooling_version
        )


# Annotations of schemas

_OWN_RULES = frozenset({"default", "deprecated"})


def compare_annotations(old: Json, new: Json, root: str, *, are_arguments: bool) -> Iterator[Change]:
    """Yield the changed annotations at the places that both schemas have."""
    one, other = ComparedSchema(old), ComparedSchema(new)
    if not isinstance(old, dict) or not isinstance(new, dict):
        return
    for subschema in walk_subschemas(old):
        after = resolve_pointer(new, subschema.place)
        if isinstance(after, dict):
            before, after = (
                _with_default(one, subschema.place, subschema.schema),
                _with_default(other, subschema.place, after),
            )
            if are_arguments:
                yield from _compare_default(before, after, root + subschema.place)
            yield from _compare_keywords(before, after, root + subschema.place, with_default=not are_arguments)


def _with_default(side: ComparedSchema, place: str, schema: JsonObject) -> JsonObject:
    """Return a schema with the default of its `$ref`, unless it has its own."""
    if "default" in schema or "$ref" not in schema:
        return schema
    target = side.follow_reference(Node(place, schema))
    has_one = target is not None and "default" in target.schema
    return {**schema, "default": target.schema["default"]} if target is not None and has_one else schema


def _compare_default(old: JsonObject, new: JsonObject, place: str) -> Iterator[Change]:
    if "default" not in old and "default" not in new:
        return
    one, other = old.get("default", msgspec.UNSET), new.get("default", msgspec.UNSET)
    if "default" not in new:
        rule, what = "input.default-removed", "no longer has a default"
    elif "default" not in old:
        rule, what = "input.default-added", "now states a default"
    else:
        # To a caller that leaves the argument out 1 and 1.0 are the same; 1 and true are not.
        are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
        if one == other if are_numbers else is_same_json(one, other):
            return
        rule, what = "input.default-changed", "has a different default"
    name = place.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
    place = f"{place}/default" if "default" in new else place
    affected = f"callers that leave out `{name}`"
    yield make_change(rule, place, f"`{name}` {what}", affected=affected, old=one, new=other)


def _compare_keywords(old: JsonObject, new: JsonObject, place: str, *, with_default: bool) -> Iterator[Change]:
    for word in sorted(old.keys() | new.keys()):
        is_note = word in ANNOTATION_KEYWORDS or word.startswith("x-")
        if not is_note or is_same_json(old.get(word), new.get(word)):
            continue
        if word == "deprecated":
            yield make_change("wording.deprecated", f"{place}/{word}", old=old.get(word), new=new.get(word))
        elif word not in _OWN_RULES or with_default:
            message = f"`{word}` has changed"
            yield make_change("wording.note-changed", f"{place}/{word}", message, old=old.get(word), new=new.get(word))


# Wording

WORDS_COMPARED = 150
"""Comparing may take time cubic in this; longer stretches are shown as removed and added as a whole."""

_WORD = re.compile(r"\s*\S+\s*")
_KEPT_AROUND = 6
_DIFF_S = 0.001


def compare_wording(old: Definition, new: Definition, budget: Budget) -> Iterator[Change]:
    """Yield the texts that changed, with a word diff."""
    yield from _compare_text("wording.title-changed", "/title", old.title or "", new.title or "", budget)
    yield from _compare_text("wording.description-changed", "/description", old.description, new.description, budget)
    for root, one, other in (
        ("/inputSchema", old.input_schema, new.input_schema),
        ("/outputSchema", old.output_schema, new.output_schema),
    ):
        if one == other or one is None or other is None:
            continue
        old_texts, new_texts = split_texts(one)[1], split_texts(other)[1]
        for place in sorted(old_texts.keys() | new_texts.keys()):
            around = place.rpartition("/")[0]
            # The texts of a new or removed argument change with it; that has its own rule.
            if resolve_pointer(one, around) is not None and resolve_pointer(other, around) is not None:
                before, after = old_texts.get(place, ""), new_texts.get(place, "")
                yield from _compare_text("wording.schema-text-changed", root + place, before, after, budget)


def _compare_text(rule: str, place: str, old: str, new: str, budget: Budget) -> Iterator[Change]:
    if old != new:
        # Without budget for a diff the change is still reported, with both texts whole.
        words = diff_words(old, new) if budget.spend_optional(_DIFF_S) else ()
        yield make_change(rule, place, old=old, new=new, affected="models that read it", words=words)


def diff_words(old: str, new: str) -> tuple[tuple[str, str], ...]:
    """Return the words that stayed (`=`), went (`-`) and came (`+`); long stretches that stayed are shortened."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    # What both begin and end with is taken off first: most changes are one word in a long text.
    head = _count_common(before, after)
    tail = _count_common(before[head:][::-1], after[head:][::-1])
    same_head, same_tail = before[:head], before[len(before) - tail :]
    changed = _diff_middle(before[head : len(before) - tail], after[head : len(after) - tail])
    parts = [("=", _shorten(same_head, keep_end=True)), *changed, ("=", _shorten(same_tail, keep_end=False))]
    return tuple((sign, text) for sign, text in parts if text)


def _count_common(one: list[str], other: list[str]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _diff_middle(before: list[str], after: list[str]) -> Iterator[tuple[str, str]]:
    if max(len(before), len(after)) > WORDS_COMPARED:
        yield "-", "".join(before)
        yield "+", "".join(after)
        return
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        if kind == "equal":
            yield "=", _shorten(before[i1:i2], keep_end=True)
            continue
        yield "-", "".join(before[i1:i2])
        yield "+", "".join(after[j1:j2])


def _shorten(words: list[str], *, keep_end: bool) -> str:
    if len(words) <= 2 * _KEPT_AROUND:
        return "".join(words)
    return "… " + "".join(words[-_KEPT_AROUND:]) if keep_end else "".join(words[:_KEPT_AROUND]) + " …"
