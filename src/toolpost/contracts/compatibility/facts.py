"""What changed beside the schemas: names, annotations, error codes, limits, versions."""

from collections.abc import Iterator

from toolpost.base.ids import Json
from toolpost.contracts.compatibility.changes import change_by
from toolpost.contracts.compatibility.definition import Definition
from toolpost.contracts.compatibility.judgement import Change
from toolpost.contracts.parts import pointer

# The harmless value of each hint, and what MCP takes for granted where nothing is said.
_HARMLESS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_PRESUMED = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


def fact_changes(old: Definition, new: Definition) -> Iterator[Change]:
    """Say what changed of all that is no schema and no wording."""
    yield from _names(old, new)
    yield from _annotations(old, new)
    yield from _errors(old, new)
    yield from _limits(old, new)
    yield from _versions(old, new)
    for key in sorted(old.others.keys() | new.others.keys()):
        one, other = old.others.get(key), new.others.get(key)
        if one != other:
            yield change_by("tool.field-changed", pointer((key,)), f"`{key}` is not what it was", old=one, new=other)


def _names(old: Definition, new: Definition) -> Iterator[Change]:
    if old.name != new.name:
        still_answers = old.name in new.aliases
        rule = "tool.renamed-with-alias" if still_answers else "tool.renamed"
        how = "and the old name still answers" if still_answers else "and the old name is no alias"
        message = f"`{old.name}` is now `{new.name}`, {how}"
        yield change_by(rule, "/name", message, affected=_by_name(old.name), old=old.name, new=new.name)
    answering = {new.name, *new.aliases}
    for alias in sorted(set(old.aliases) - answering):
        yield change_by(
            "tool.alias-removed", "/aliases", f"`{alias}` no longer answers", affected=_by_name(alias), old=alias
        )
    for alias in sorted(set(new.aliases) - {old.name, *old.aliases}):
        yield change_by("tool.alias-added", "/aliases", f"`{alias}` answers too", new=alias)


def _by_name(name: str) -> str:
    return f"callers that call `{name}`"


def _annotations(old: Definition, new: Definition) -> Iterator[Change]:
    for key in sorted(old.annotations.keys() | new.annotations.keys()):
        one, other = old.annotations.get(key), new.annotations.get(key)
        place = pointer(("annotations", key))
        if key in _HARMLESS:
            yield from _hint(
                key, place, _PRESUMED[key] if one is None else one, _PRESUMED[key] if other is None else other
            )
        elif one != other:
            rule = "wording.title-changed" if key == "title" else "annotations.changed"
            yield change_by(rule, place, f"the annotation `{key}` is not what it was", old=one, new=other)


def _hint(key: str, place: str, one: Json, other: Json) -> Iterator[Change]:
    if one is other or one == other:
        return
    if one is _HARMLESS[key]:
        affected = f"clients that rely on `{key}` being {str(one).lower()}"
        yield change_by(
            "annotations.weakened", place, f"`{key}` is now {_describe(other)}", affected=affected, old=one, new=other
        )
    else:
        affected = "clients that ask before they run it"
        yield change_by(
            "annotations.strengthened",
            place,
            f"`{key}` is now {_describe(other)}",
            affected=affected,
            old=one,
            new=other,
        )


def _describe(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)[:40]


def _errors(old: Definition, new: Definition) -> Iterator[Change]:
    for code in sorted(set(new.error_codes) - set(old.error_codes)):
        message = f"the tool may now fail with `{code}`"
        yield change_by(
            "errors.code-added", "/errorCodes", message, affected="callers that branch on error codes", new=code
        )
    for code in sorted(set(old.error_codes) - set(new.error_codes)):
        message = f"the tool no longer fails with `{code}`"
        yield change_by(
            "errors.code-removed", "/errorCodes", message, affected=f"callers that wait for `{code}`", old=code
        )


def _limits(old: Definition, new: Definition) -> Iterator[Change]:
    one, other = old.timeout_ms, new.timeout_ms
    if one != other:
        is_shorter = other is not None and (one is None or other < one)
        rule = "limits.timeout-shortened" if is_shorter else "limits.timeout-lengthened"
        message = f"the time limit is {_limit(other)}, and was {_limit(one)}"
        affected = f"callers whose calls take over {other:,} ms" if is_shorter else "callers that wait for the limit"
        yield change_by(rule, "/timeoutMs", message, affected=affected, old=one, new=other)
    if old.cancellation != new.cancellation:
        yield change_by(
            "limits.cancellation-changed",
            "/cancellation",
            affected="callers that cancel",
            old=old.cancellation,
            new=new.cancellation,
        )
    if old.concurrency != new.concurrency:
        message = f"calls are `{new.concurrency}`, and were `{old.concurrency}`"
        affected = "callers that call it many times at once"
        yield change_by(
            "limits.concurrency-changed",
            "/concurrency",
            message,
            affected=affected,
            old=old.concurrency,
            new=new.concurrency,
        )


def _limit(timeout_ms: int | None) -> str:
    return "not set" if timeout_ms is None else f"{timeout_ms:,} ms"


def _versions(old: Definition, new: Definition) -> Iterator[Change]:
    one, other = old.schema_version, new.schema_version
    if one != other:
        rule = "version.raised" if other > one else "version.lowered"
        yield change_by(rule, "/schemaVersion", f"`schemaVersion` is {other}, and was {one}", old=one, new=other)
    if old.tooling_version != new.tooling_version:
        yield change_by("version.tooling-changed", "/toolingVersion", old=old.tooling_version, new=new.tooling_version)
