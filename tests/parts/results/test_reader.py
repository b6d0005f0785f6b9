"""Searching a kept result: what one answer may hold."""

import pytest

from tests.hostile.attacks import attack
from toolpost.parts.results.reader import PAGE_LIMIT_BYTES, _compile, _search_block

pytest.importorskip("re2")


@attack(
    "caller", "searches a result of short lines that all match", "an answer has few of them, and says where to go on"
)
@pytest.mark.parametrize("is_text", [True, False])
def test_short_lines_that_match_do_not_fill_an_answer(is_text: bool) -> None:
    line = b"a\\n" if is_text else b"a\n"
    raw = line * 80_000
    found, searched, room = _search_block(
        _compile("a"), raw, is_text=is_text, is_last=True, room=PAGE_LIMIT_BYTES // 16
    )

    assert (len(found), room) == (PAGE_LIMIT_BYTES // 16 // 32, 0)
    assert searched == len(found) * len(line), "the next search goes on with the line that had no room"
    assert found[-1] == (searched - len(line), "a")
