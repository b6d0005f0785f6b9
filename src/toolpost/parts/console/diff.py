"""Two texts side by side, line by line, as the page shows them."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import takewhile, zip_longest
from typing import Final

from toolpost.base import JsonObject

CONTEXT_LINES: Final = 3
ALIGNED_LIMIT: Final = 1_000
"""Lines of one side, between the first and the last change, that are aligned: the time grows faster than their number."""

SHOWN_LIMIT: Final = 4_000
"""Lines of one side that are shown; a definition may have any number."""


def side_by_side(old: str, new: str, *, context: int = CONTEXT_LINES) -> list[JsonObject]:
    """Return rows `{kind, old, new}`: `same`, `gone`, `new` or `changed`; None on the side that has no line.

    The texts may be a stranger's, so the time is limited: frequent lines do not serve to align (`autojunk`), and texts that
    differ over too many lines are shown next to each other as they are.
    """
    before, after = old.splitlines(), new.splitlines()
    if before == after:
        return []
    first = _count_common(before, after)
    last = _count_common(before[first:][::-1], after[first:][::-1])
    gone, added = before[first : len(before) - last], after[first : len(after) - last]
    rows = list(_rows("equal", *[before[max(first - context, 0) : first]] * 2))
    if max(len(gone), len(added)) > ALIGNED_LIMIT:
        rows.extend(_rows("replace", gone[:SHOWN_LIMIT], added[:SHOWN_LIMIT]))
    else:
        for place, group in enumerate(SequenceMatcher(a=gone, b=added, autojunk=True).get_grouped_opcodes(context)):
            if place:
                rows.append({"kind": "same", "old": "…", "new": "…"})
            for tag, start, end, new_start, new_end in group:
                rows.extend(_rows(tag, gone[start:end], added[new_start:new_end]))
    rows.extend(_rows("equal", *[before[len(before) - last :][:context]] * 2))
    return rows


def _count_common(old: Sequence[str], new: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _rows(tag: str, old: list[str], new: list[str]) -> Iterator[JsonObject]:
    for gone, added in zip_longest(old, new):
        is_same = tag == "equal" or gone == added
        kind = "same" if is_same else "new" if gone is None else "gone" if added is None else "changed"
        yield {"kind": kind, "old": gone, "new": added}
