"""JSON made smaller: long strings keep their beginning, long arrays their first items, everything else stays as it is.

The result is valid JSON of the same shape: no type changes, and an object keeps its keys, unless they alone take too much room.
So it mostly satisfies the schema that the whole satisfies. Whether it does is for the caller to check.

Example: `{"total": 3, "rows": ["aaaa…", "bbbb…", "cccc…"]}` with room for one row becomes `{"total": 3, "rows": ["aaaa…"]}`.
"""

from typing import Final

from toolpost.parts.results.scan import ARRAY, OBJECT, QUOTE, JsonMember, Scanner, end_of_characters

DEPTH_LIMIT: Final = 24
"""Containers below it are left whole, or emptied."""
MEMBERS_LIMIT: Final = 2_000
"""An object with more keys counts as a table, which keeps the first ones."""
_LEAST_TEXT: Final = 40
"""A string has to be longer than this to be worth cutting."""


class CannotCut(Exception):
    """There is no smaller form: too many keys, or numbers alone."""


def cut_json(
    data: bytes,
    start: int,
    end: int,
    budget: int,
    *,
    strings: bool = True,
    arrays: bool = True,
    steps: Scanner | None = None,
) -> bytes:
    """Return a value within `budget` bytes, by cutting strings, arrays or both. Raises `CannotCut` and `TooManySteps`."""
    cutter = _Cutter(steps or Scanner(data), strings=strings, arrays=arrays)
    made = cutter.cut(start, end, budget, 0)
    if len(made) > budget:
        raise CannotCut
    return made


def cut_string(data: bytes, start: int, end: int, budget: int) -> tuple[bytes, int]:
    """Return a JSON string, quotes included, within `budget` bytes, with a mark that says how much is missing; and the position
    up to which it has the original.
    """
    room = budget - 2 - len(_mark(end - start))
    shown = end_of_characters(data, start + 1, min(end - 1, start + 1 + max(0, room)))
    return b'"%b%b"' % (data[start + 1 : shown], _mark(end - 1 - shown)), shown


def _mark(missing: int) -> bytes:
    return b"\xe2\x80\xa6 [%d more bytes]" % missing


class _Cutter:
    def __init__(self, scanner: Scanner, *, strings: bool, arrays: bool) -> None:
        self._scanner = scanner
        self._data = scanner.data
        self._strings = strings
        self._arrays = arrays

    def cut(self, start: int, end: int, budget: int, depth: int) -> bytes:
        """Return a value in fewer bytes; more than `budget` only if nothing in it can be cut any further."""
        kind = self._data[start]
        if end - start <= max(budget, _LEAST_TEXT if kind == QUOTE else 0) or kind not in (QUOTE, ARRAY, OBJECT):
            return self._data[start:end]
        if kind == QUOTE:
            if not self._strings:
                raise CannotCut
            return cut_string(self._data, start, end, max(budget, _LEAST_TEXT))[0]
        if depth >= DEPTH_LIMIT and not (kind == ARRAY and self._arrays):
            raise CannotCut
        if kind == ARRAY and self._arrays:
            return b"[]" if depth >= DEPTH_LIMIT else self._cut_array(start, budget, depth)
        return self._cut_all(start, budget, depth)

    def _cut_all(self, start: int, budget: int, depth: int) -> bytes:
        """Keep every member of a container, each within its share; of an object with too many for that, the first ones."""
        is_object = self._data[start] == OBJECT
        members = []
        for member in self._scanner.members(start):
            members.append(member)
            if len(members) > MEMBERS_LIMIT:
                break
        if len(members) <= MEMBERS_LIMIT:
            made = self._cut_members(members, budget - 2, depth)
            if len(made) <= budget - 2:
                return b"{%b}" % made if is_object else b"[%b]" % made
        if not (is_object and self._arrays):
            raise CannotCut
        # Too many keys for any of their values: it is used as a table.
        return self._cut_table(members, budget)

    def _cut_array(self, start: int, budget: int, depth: int) -> bytes:
        """Keep the first items, the last of them perhaps cut. What follows is not even looked at."""
        kept: list[bytes] = []
        left = budget - 2
        for member in self._scanner.members(start):
            size = member.end - member.start + 1
            if size <= left:
                kept.append(self._data[member.start : member.end])
                left -= size
                continue
            # One item that is too large must not leave the array empty; nor is a sliver of one worth having.
            if not kept or left > budget // 4:
                item = self.cut(member.start, member.end, left - 1, depth + 1)
                if len(item) < left:
                    kept.append(item)
            break
        return b"[%b]" % b",".join(kept)

    def _cut_table(self, members: list[JsonMember], budget: int) -> bytes:
        kept: list[bytes] = []
        left = budget - 2
        for member in members:
            assert member.key is not None
            size = member.end - member.key[0] + 1
            if size > left:
                break
            kept.append(self._data[member.key[0] : member.end])
            left -= size
        return b"{%b}" % b",".join(kept)

    def _cut_members(self, members: list[JsonMember], budget: int, depth: int) -> bytes:
        """Keep all members: small ones whole, and the large ones share the rest."""
        keys = [b"" if m.key is None else self._data[m.key[0] : m.key[1]] + b":" for m in members]
        left = budget - sum(map(len, keys)) - len(members)
        share = 0
        waiting = sorted(m.end - m.start for m in members)
        for number, size in enumerate(waiting):
            share = max(0, left) // (len(waiting) - number)
            if size > share:
                break
            left -= size
        parts = (self.cut(m.start, m.end, share, depth + 1) for m in members)
        return b",".join(key + part for key, part in zip(keys, parts, strict=True))
