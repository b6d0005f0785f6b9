"""The lock file: every tool's whole definition, written down so that no change goes unnoticed. Text in, text out."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, Self

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.compatibility.definition import Definition, Digests
from toolpost.contracts.errors import BadLock

FORMAT: Final = 1
"""Raised when the layout or the rule of the digests changes: a lock of another format is not compared."""

_KEY: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*")\s*:')
_CONFLICT: Final = re.compile(r"(?:<{7}|={7}|>{7}|\|{7})(?: |$)")


class LockedTool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as it was locked, and where it came from."""

    source: str
    """The plugin or the server."""
    definition: Definition
    digests: Digests

    @classmethod
    def of(cls, source: str, definition: Definition) -> Self:
        """Lock a definition."""
        return cls(source=source, definition=definition, digests=definition.digests)


Tools = Mapping[str, LockedTool]
"""Tools by their names on the wire."""


def parse_lock(text: str, *, name: str) -> dict[str, LockedTool]:
    """Read the text of a lock; whatever is wrong with it is an error that names the line."""
    _refuse_conflicts(text, name)
    content = _decode(text, name)
    if not isinstance(content, dict) or "toolpostLock" not in content:
        raise BadLock(f"{name} is no lock of Toolpost.", hint=_RESTORE)
    if content["toolpostLock"] != FORMAT:
        raise _other_format(content["toolpostLock"], name)
    tools = content.get("tools")
    if not isinstance(tools, dict):
        raise BadLock(f"{name}: it has no `tools`.", hint=_RESTORE)
    return {tool: _lock_tool(tool, entry, text, name) for tool, entry in tools.items()}


def lock_text(tools: Tools) -> str:
    """Write a lock: sorted, one fact on a line, the same text for the same tools."""
    content = {
        "toolpostLock": FORMAT,
        "tools": {
            tool: {
                "source": tools[tool].source,
                "digests": msgspec.to_builtins(tools[tool].digests),
                "definition": tools[tool].definition.to_json(),
            }
            for tool in sorted(tools)
        },
    }
    return json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def lines_of(tools: Collection[str], text: str) -> dict[str, int]:
    """Say on which lines of a lock's text tools begin; the first one for those that are not there."""
    wanted = {json.dumps(tool, ensure_ascii=False): tool for tool in tools}
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if (key := _KEY.match(line)) and (tool := wanted.get(key[1])) is not None:
            found.setdefault(tool, number)
    return dict.fromkeys(tools, 1) | found


_RESTORE: Final = "restore it from version control, or remove it and run `toolpost lock`; nothing was overwritten"


def _refuse_conflicts(text: str, name: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if _CONFLICT.match(line):
            raise BadLock(
                f"{name}, line {number}: a merge conflict is not resolved.",
                hint="take one side, then `toolpost check` says what is different",
                line=number,
            )


def _decode(text: str, name: str) -> Json:
    doubled: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> JsonObject:
        found = dict(pairs)
        if len(found) < len(pairs):
            times = Counter(key for key, _ in pairs)
            doubled.append(next(key for key, _ in pairs if times[key] > 1))
        return found

    try:
        content = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise BadLock(
            f"{name}, line {error.lineno}: it ends too early or is no JSON ({error.msg}).",
            hint=_RESTORE,
            line=error.lineno,
        ) from error
    except RecursionError as error:
        raise BadLock(f"{name} is nested too deeply.", hint=_RESTORE) from error
    except ValueError as error:
        # Python refuses to read a number of more than 4,300 digits.
        raise BadLock(f"{name} holds a number that is too long.", hint=_RESTORE) from error
    if doubled:
        # The second of them; both may be on one line, or in another spelling.
        line = list(itertools.islice(itertools.chain([1], _lines_of(doubled[0], text)), 3))[-1]
        raise BadLock(f"{name}, line {line}: `{doubled[0]}` is there twice.", hint="keep one of the two", line=line)
    return content


def _lines_of(key: str, text: str) -> Iterator[int]:
    written = re.compile(rf"^\s*{re.escape(json.dumps(key, ensure_ascii=False))}\s*:")
    return (number for number, line in enumerate(text.splitlines(), 1) if written.match(line))


def _other_format(found: Json, name: str) -> BadLock:
    if isinstance(found, int) and found > FORMAT:
        return BadLock(
            f"{name} has the format {found}; this Toolpost writes {FORMAT}.",
            hint="use a newer Toolpost; nothing was overwritten",
        )
    return BadLock(f"{name}: `toolpostLock` is no format that there ever was.", hint=_RESTORE)


def _lock_tool(tool: str, entry: Json, text: str, name: str) -> LockedTool:
    def bad(reason: str, hint: str) -> BadLock:
        # The line is looked for only now: in a long lock that takes a while.
        line = lines_of([tool], text)[tool]
        return BadLock(f"{name}, line {line}: `{tool}`{reason}", hint=hint, line=line)

    try:
        locked = msgspec.convert(entry, LockedTool)
    except (msgspec.ValidationError, RecursionError) as error:
        raise bad(f": {error}.", _RESTORE) from error
    if locked.definition.name != tool:
        raise bad(f" holds the definition of `{locked.definition.name}`.", _RESTORE)
    try:
        digests = locked.definition.digests
    except (ValueError, RecursionError) as error:
        # `json` reads numbers beyond a double, NaN and halves of surrogate pairs, none of which is JSON.
        raise bad(" holds a value that no definition has.", _RESTORE) from error
    if locked.digests != digests:
        raise bad(
            ": the definition is not what its digests say; it was edited by hand.",
            "undo the edit; `toolpost lock --accept` is how a change is taken over",
        )
    return locked
