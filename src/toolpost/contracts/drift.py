"""What is different between a lock and what is live, tool by tool, and what of it may not be."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal

import msgspec

from toolpost.base.ids import JsonObject
from toolpost.contracts.compatibility.definition import Definition
from toolpost.contracts.compatibility.judgement import Judgement, Verdict
from toolpost.contracts.findings import Names, Suspicion, new_suspicions, suspicions
from toolpost.contracts.lockfile import LockedTool, Tools

Judge = Callable[[Definition, Definition], Judgement]


class Fault(StrEnum):
    """What a check does not let pass."""

    NO_BUMP = "bump-missing"
    NO_CAUSE = "bump-without-cause"
    WENT_DOWN = "version-went-down"
    REMOVED = "removed-without-alias"

    @property
    def reason(self) -> str:
        """Say it in words."""
        return _REASONS[self]


_REASONS: Mapping[Fault, str] = {
    Fault.NO_BUMP: "it changed in a way that needs a higher schemaVersion, and has the same",
    Fault.NO_CAUSE: "its schemaVersion rose, and nothing else changed",
    Fault.WENT_DOWN: "its schemaVersion went down",
    Fault.REMOVED: "it is gone, and no tool answers to its name",
}


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """One tool that is not as it was locked."""

    name: str
    """As it was locked; a tool that is new has the name it has now."""
    kind: Literal["added", "changed", "removed", "renamed"]
    source: str
    old: Definition | None = None
    new: Definition | None = None
    judgement: Judgement = Judgement()
    suspicions: Sequence[Suspicion] = ()
    """What was not there before and may be meant for the model; shown, and never a fault by itself."""

    @property
    def verdict(self) -> Verdict:
        """What it means for those who call the tool today."""
        return Verdict.BREAKING if self.kind == "removed" else self.judgement.verdict

    @property
    def fault(self) -> Fault | None:
        """What a check does not let pass; None if it does."""
        if self.kind == "removed":
            return Fault.REMOVED
        if self.old is None or self.new is None:
            return None
        before, now = self.old.schema_version, self.new.schema_version
        if now < before:
            return Fault.WENT_DOWN
        if now == before:
            return Fault.NO_BUMP if self.judgement.needs_bump else None
        return None if has_cause(self.old, self.new) else Fault.NO_CAUSE

    @property
    def required_version(self) -> int | None:
        """The lowest schemaVersion that would be right; None if it is."""
        if self.fault in (Fault.NO_BUMP, Fault.WENT_DOWN) and self.old is not None:
            return self.old.schema_version + self.judgement.needs_bump
        return self.old.schema_version if self.fault is Fault.NO_CAUSE and self.old is not None else None

    def to_json(self) -> JsonObject:
        """Write it as plain JSON."""
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
            "fault": self.fault.value if self.fault is not None else None,
            **self.judgement.to_json(),
            "verdict": self.verdict.value,
            "suspicions": [suspicion.to_json() for suspicion in self.suspicions],
        }


def has_cause(old: Definition, new: Definition) -> bool:
    """Say whether anything but the versions is different."""
    same: dict[str, Any] = {"schema_version": 1, "tooling_version": "", "meta": {}}
    return msgspec.structs.replace(old, **same) != msgspec.structs.replace(new, **same)


def is_same(old: Definition, new: Definition) -> bool:
    """Say whether two definitions promise the same; which build it is makes no difference, nor does `_meta`."""
    return old == new or msgspec.structs.replace(old, tooling_version=new.tooling_version, meta=new.meta) == new


def drifts(locked: Tools, live: Tools, *, judge: Judge) -> Iterator[Drift]:
    """Compare, in the order of the names. A new tool that answers to the name of one that is gone is that tool, renamed."""
    heirs = {alias: name for name, tool in live.items() if name not in locked for alias in tool.definition.aliases}
    renamed = {heirs[name] for name in locked if name not in live and name in heirs}
    names = Names(live)
    for name in sorted(locked.keys() | live.keys()):
        if name in renamed:
            continue
        old, new = locked.get(name), live.get(name) or live.get(heirs.get(name, ""))
        if (found := _compare_tool(name, old, new, judge, names)) is not None:
            yield found


def _compare_tool(
    name: str, old: LockedTool | None, new: LockedTool | None, judge: Judge, names: Names
) -> Drift | None:
    if old is None or new is None:
        there = old or new
        assert there is not None
        return Drift(
            name=name,
            kind="removed" if new is None else "added",
            source=there.source,
            old=old.definition if old else None,
            new=new.definition if new else None,
            suspicions=suspicions(new.definition, names) if new else (),
        )
    brought = new_suspicions(old.definition, new.definition, names) if old.definition != new.definition else []
    if is_same(old.definition, new.definition) and not brought:
        return None
    return Drift(
        name=name,
        kind="changed" if new.definition.name == name else "renamed",
        source=new.source,
        old=old.definition,
        new=new.definition,
        judgement=judge(old.definition, new.definition),
        suspicions=brought,
    )
