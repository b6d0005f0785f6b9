"""The lock file `toolpost.lock`: every tool definition as text, and how the live tools differ from it (`drifts`).

Text in, text out: reading and writing the file is left to `admin.lock_file` and `settings.lock`. A lock is JSON that a person
reads in a diff: sorted, one fact on a line, and beside each definition its digests, so that an edit by hand is noticed. For
example, a tool that takes fewer values than it did is a `Drift` of the kind `changed`, with the judgement of the change; if its
`schemaVersion` is the same as before, its `failure` is `bump-missing`, and `toolpost check` fails.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, Self

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.compatibility.definition import (
    Definition,
    Digests,
    define_instructions,
    find_server_of_instructions,
    is_skill_name,
    is_tool_name,
    name_instructions,
)
from toolpost.contracts.compatibility.rules import Judgement, Verdict
from toolpost.contracts.errors import BadLock
from toolpost.contracts.findings import Finding, NameIndex, inspect_change, inspect_definition

__all__ = ["Drift", "LockedTool", "drifts", "lock_text", "parse_lock"]

FORMAT: Final = 1
"""Raised when the layout or the rule for digests changes: a lock of another format is not compared."""

_KEY: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*")\s*:')
_RESTORE: Final = "restore it from version control, or remove it and run `toolpost lock`; nothing was overwritten"
_UNDO: Final = "undo the edit; `toolpost lock --accept` accepts a change"
_CONFLICT: Final = re.compile(r"(?:<{7}|={7}|>{7}|\|{7})(?: |$)")


class LockedTool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as it was locked."""

    source: str
    """The name of the plugin or server that the tool came from."""
    definition: Definition
    digests: Digests

    @classmethod
    def of(cls, source: str, definition: Definition) -> Self:
        return cls(source=source, definition=definition, digests=definition.digests)


LockedTools = Mapping[str, LockedTool]
"""Tools by their names on the wire."""


def parse_lock(text: str, *, name: str) -> dict[str, LockedTool]:
    """Read the text of a lock; raises `BadLock`, which names the line. `name` is the file's name, for messages."""
    # First: what git leaves of a conflict is not JSON either, and its markers say more than where that breaks.
    for number, line in enumerate(text.splitlines(), 1):
        if _CONFLICT.match(line):
            message = f"{name}, line {number}: a merge conflict is not resolved."
            raise BadLock(message, hint="resolve it, then run `toolpost check`", line=number)
    content = _decode(text, name)
    if not isinstance(content, dict) or "toolpostLock" not in content:
        raise BadLock(f"{name} is not a Toolpost lock file.", hint=_RESTORE)
    if isinstance(found := content["toolpostLock"], int) and found > FORMAT:
        message = f"{name} has the format {found}; this Toolpost writes {FORMAT}."
        raise BadLock(message, hint="use a newer Toolpost; nothing was overwritten")
    if found != FORMAT:
        raise BadLock(f"{name}: `toolpostLock` is not a known format.", hint=_RESTORE)
    tools, instructions, skills = content.get("tools"), content.get("instructions", {}), content.get("skills", {})
    if not isinstance(tools, dict) or not isinstance(instructions, dict) or not isinstance(skills, dict):
        raise BadLock(f"{name}: `tools` is missing, or `instructions` or `skills` is no object.", hint=_RESTORE)
    found = {tool: _parse_tool(tool, entry, text, name) for tool, entry in tools.items()}
    for server, entry in instructions.items():
        found[name_instructions(server)] = _parse_instructions(server, entry, text, name)
    for skill, entry in skills.items():
        found[skill] = _parse_skill(skill, entry, text, name)
    return found


def lock_text(tools: LockedTools) -> str:
    """Write a lock: sorted, one fact per line, always the same text for the same tools."""
    instructions = {
        server: {
            "digest": tools[name].digests.wording,
            # Line by line, so that a change is seen where it is.
            "text": tools[name].definition.description.split("\n"),
        }
        for name in sorted(tools)
        if (server := find_server_of_instructions(name)) is not None
    }
    skills = {
        name: {
            "source": tools[name].source,
            "digests": msgspec.to_builtins(tools[name].digests),
            "description": tools[name].definition.description,
            **tools[name].definition.others,
        }
        for name in sorted(tools)
        if is_skill_name(name)
    }
    content = {
        "toolpostLock": FORMAT,
        # Absent where there are none: earlier versions wrote it so.
        **({"instructions": instructions} if instructions else {}),
        **({"skills": skills} if skills else {}),
        "tools": {
            tool: {
                "source": tools[tool].source,
                "digests": msgspec.to_builtins(tools[tool].digests),
                "definition": tools[tool].definition.to_json(),
            }
            for tool in sorted(tools)
            if is_tool_name(tool)
        },
    }
    return json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def find_lines(tools: Collection[str], text: str) -> dict[str, int]:
    """Return the line of a lock's text on which each tool begins; 1 for tools that are not there."""
    # Instructions stand under the names of their servers, and before all tools.
    wanted = {json.dumps(find_server_of_instructions(tool) or tool, ensure_ascii=False): tool for tool in tools}
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if (key := _KEY.match(line)) and (tool := wanted.get(key[1])) is not None:
            found.setdefault(tool, number)
    return dict.fromkeys(tools, 1) | found


def _decode(text: str, name: str) -> Json:
    duplicates: list[str] = []

    def note_duplicates(pairs: list[tuple[str, Any]]) -> JsonObject:
        found = dict(pairs)
        if len(found) < len(pairs):
            times = Counter(key for key, _ in pairs)
            duplicates.append(next(key for key, _ in pairs if times[key] > 1))
        return found

    try:
        content = json.loads(text, object_pairs_hook=note_duplicates)
    except json.JSONDecodeError as error:
        raise BadLock(
            f"{name}, line {error.lineno}: it is truncated or not JSON ({error.msg}).",
            hint=_RESTORE,
            line=error.lineno,
        ) from error
    except RecursionError as error:
        raise BadLock(f"{name} is nested too deeply.", hint=_RESTORE) from error
    except ValueError as error:
        # Python refuses to read a number of more than 4,300 digits.
        raise BadLock(f"{name} contains a number that is too long.", hint=_RESTORE) from error
    if duplicates:
        # Name the second one; both may be on one line, or escaped differently.
        key = re.compile(rf"^\s*{re.escape(json.dumps(duplicates[0], ensure_ascii=False))}\s*:")
        lines = [number for number, each in enumerate(text.splitlines(), 1) if key.match(each)]
        line = [1, *lines[:2]][-1]
        raise BadLock(f"{name}, line {line}: `{duplicates[0]}` is listed twice.", hint="keep one of the two", line=line)
    return content


def _make_entry_error(tool: str, reason: str, text: str, name: str, *, hint: str = _RESTORE) -> BadLock:
    # The line is searched only for an error: in a long lock it takes a while.
    line = find_lines([tool], text)[tool]
    server = find_server_of_instructions(tool)
    entry = tool if server is None else f"instructions.{server}"
    return BadLock(f"{name}, line {line}: `{entry}`{reason}", hint=hint, line=line)


def _parse_tool(tool: str, entry: Json, text: str, name: str) -> LockedTool:
    try:
        locked = msgspec.convert(entry, LockedTool)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _make_entry_error(tool, f": {error}.", text, name) from error
    if locked.definition.name != tool:
        reason = f" holds the definition of `{locked.definition.name}`."
        raise _make_entry_error(tool, reason, text, name)
    try:
        digests = locked.definition.digests
    except (ValueError, RecursionError) as error:
        # Python's `json` accepts numbers beyond a double, NaN and lone surrogates, which are not JSON.
        raise _make_entry_error(tool, " holds a value that no definition has.", text, name) from error
    if locked.digests != digests:
        reason = ": the definition does not match its digests; it was edited by hand."
        raise _make_entry_error(tool, reason, text, name, hint=_UNDO)
    return locked


class _LockedInstructions(msgspec.Struct, forbid_unknown_fields=True):
    digest: str
    text: list[str]


def _parse_instructions(server: str, entry: Json, text: str, name: str) -> LockedTool:
    try:
        locked = msgspec.convert(entry, _LockedInstructions)
        found = LockedTool.of(server, define_instructions(server, "\n".join(locked.text)))
    except (ValueError, RecursionError) as error:
        raise _make_entry_error(name_instructions(server), f": {error}.", text, name) from error
    if found.digests.wording != locked.digest:
        reason = ": the text does not match its digest; it was edited by hand."
        raise _make_entry_error(name_instructions(server), reason, text, name, hint=_UNDO)
    return found


class _LockedSkill(msgspec.Struct, forbid_unknown_fields=True):
    source: str
    digests: Digests
    description: str
    frontmatter: JsonObject
    resources: dict[str, str] | str


def _parse_skill(skill: str, entry: Json, text: str, name: str) -> LockedTool:
    try:
        locked = msgspec.convert(entry, _LockedSkill)
        others = {"frontmatter": locked.frontmatter, "resources": locked.resources}
        definition = Definition(name=skill, description=locked.description, others=others)
        found = LockedTool.of(locked.source, definition)
    except (ValueError, RecursionError) as error:
        raise _make_entry_error(skill, f": {error}.", text, name) from error
    if not is_skill_name(skill) or found.digests != locked.digests:
        reason = ": the skill does not match its digests; it was edited by hand."
        raise _make_entry_error(skill, reason, text, name, hint=_UNDO)
    return found


def count_tools(tools: Collection[str]) -> int:
    """Return how many of these names are those of tools, not of instructions or skills."""
    return sum(map(is_tool_name, tools))


Judge = Callable[[Definition, Definition], Judgement]


class CheckFailure(StrEnum):
    """Why `toolpost check` fails for a tool."""

    NO_BUMP = "bump-missing"
    NO_CAUSE = "bump-without-cause"
    WENT_DOWN = "version-went-down"
    REMOVED = "removed-without-alias"

    @property
    def reason(self) -> str:
        return _REASONS[self]


_REASONS: Mapping[CheckFailure, str] = {
    CheckFailure.NO_BUMP: "it changed in a way that needs a higher schemaVersion, and has the same",
    CheckFailure.NO_CAUSE: "its schemaVersion rose, and nothing else changed",
    CheckFailure.WENT_DOWN: "its schemaVersion went down",
    CheckFailure.REMOVED: "it is gone, and no tool answers to its name",
}


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """One tool that is not as it was locked."""

    name: str
    """The locked name; for a new tool, its name now."""
    kind: Literal["added", "changed", "removed", "renamed"]
    source: str
    old: Definition | None = None
    new: Definition | None = None
    judgement: Judgement = Judgement()
    findings: Sequence[Finding] = ()
    """What the change brought; shown, but not a reason for `check` to fail."""

    @property
    def verdict(self) -> Verdict:
        """What it means for today's callers of the tool."""
        is_broken = self.kind == "removed" and is_tool_name(self.name)
        return Verdict.BREAKING if is_broken else self.judgement.verdict

    @property
    def failure(self) -> CheckFailure | None:
        """Why `toolpost check` fails; None if it does not."""
        if self.kind == "removed":
            # Instructions and skills are not called: without them nothing breaks.
            return CheckFailure.REMOVED if is_tool_name(self.name) else None
        if self.old is None or self.new is None:
            return None
        before, now = self.old.schema_version, self.new.schema_version
        if now < before:
            return CheckFailure.WENT_DOWN
        if now == before:
            return CheckFailure.NO_BUMP if self.judgement.needs_bump else None
        return None if differs_beyond_version(self.old, self.new) else CheckFailure.NO_CAUSE

    @property
    def required_version(self) -> int | None:
        """The lowest `schemaVersion` that would pass; None if the present one does."""
        if self.failure in (CheckFailure.NO_BUMP, CheckFailure.WENT_DOWN) and self.old is not None:
            return self.old.schema_version + (1 if self.judgement.needs_bump else 0)
        return self.old.schema_version if self.failure is CheckFailure.NO_CAUSE and self.old is not None else None

    def to_json(self) -> JsonObject:
        # `fault` is the public key of this failure.
        return {
            "name": self.name,
            "kind": self.kind,
            "source": self.source,
            "newName": self.new.name if self.new is not None else None,
            "schemaVersion": {
                "old": self.old.schema_version if self.old is not None else None,
                "new": self.new.schema_version if self.new is not None else None,
                "wanted": self.required_version,
            },
            "fault": self.failure.value if self.failure is not None else None,
            **self.judgement.to_json(),
            "verdict": self.verdict.value,
            "findings": [finding.to_json() for finding in self.findings],
        }


def differs_beyond_version(old: Definition, new: Definition) -> bool:
    """Return whether anything but the versions and `_meta` is different, or what that says about an app."""
    same: dict[str, Any] = {"schema_version": 1, "tooling_version": "", "meta": {}}
    return old.app != new.app or msgspec.structs.replace(old, **same) != msgspec.structs.replace(new, **same)


def is_same_promise(old: Definition, new: Definition) -> bool:
    """Return whether two definitions promise the same: all but `toolingVersion`, and `_meta` apart from apps, is equal."""
    if old == new:
        return True
    return (
        old.app == new.app and msgspec.structs.replace(old, tooling_version=new.tooling_version, meta=new.meta) == new
    )


def drifts(locked: LockedTools, live: LockedTools, *, judge: Judge) -> Iterator[Drift]:
    """Compare tools in the order of their names. If a new tool has a removed tool's name as an alias, the two are one tool that
    was renamed.
    """
    successors = {alias: name for name, tool in live.items() if name not in locked for alias in tool.definition.aliases}
    renamed = {successors[name] for name in locked if name not in live and name in successors}
    names = NameIndex(filter(is_tool_name, live))
    for name in sorted(locked.keys() | live.keys()):
        if name in renamed:
            continue
        old, new = locked.get(name), live.get(name) or live.get(successors.get(name, ""))
        if (found := _compare_tool(name, old, new, judge, names)) is not None:
            yield found


def _compare_tool(
    name: str, old: LockedTool | None, new: LockedTool | None, judge: Judge, names: NameIndex
) -> Drift | None:
    if old is None or new is None:
        present = old or new
        assert present is not None
        return Drift(
            name=name,
            kind="removed" if new is None else "added",
            source=present.source,
            old=old.definition if old else None,
            new=new.definition if new else None,
            findings=inspect_definition(new.definition, names) if new else (),
        )
    findings = inspect_change(old.definition, new.definition, names) if old.definition != new.definition else []
    if is_same_promise(old.definition, new.definition) and not findings:
        return None
    return Drift(
        name=name,
        kind="changed" if new.definition.name == name else "renamed",
        source=new.source,
        old=old.definition,
        new=new.definition,
        judgement=judge(old.definition, new.definition),
        findings=findings,
    )
