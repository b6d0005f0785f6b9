"""What callers choose, and caches remember: the memory that it takes has a bound that does not depend on the callers."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from tests.hostile.attacks import attack
from toolpost.base.nearest import match_names, nearest_names
from toolpost.base.redaction import is_secret_name
from toolpost.discovery.search.meaning import pieces_of
from toolpost.discovery.search.words import words_of
from toolpost.store.wakeups import encode_topic

BOUND_BYTES = 4 * 1024 * 1024
LONG = 100_000
"""Characters of one name: 300 of them are 30 MB."""

CACHES: dict[str, tuple[int, Callable[[int], Any]]] = {
    "names of tools": (300, lambda number: nearest_names(f"{number}" + "x" * LONG, ["does__echo"], 3)),
    "names of arguments": (300, lambda number: match_names([f"{number}" + "a" * LONG], ["text"], ["text"])),
    "names of values": (300, lambda number: is_secret_name(f"{number}" + "x" * LONG)),
    "topics to wait for": (300, lambda number: encode_topic(f"{number}" + "x" * LONG)),
    "words of queries": (30_000, lambda number: list(words_of(f"w{number}" + "x" * 30))),
    "pieces of words of queries": (30_000, lambda number: pieces_of(f"w{number}")),
}


@attack(
    "caller",
    "sends ever new names, words and topics, long ones too",
    "caches keep a few thousand short ones: four megabytes at most, however many there were",
)
@pytest.mark.parametrize("what", CACHES)
def test_caches_are_bounded(what: str) -> None:
    number, remember = CACHES[what]
    for each in range(100):  # what is loaded once
        remember(-each)
    tracemalloc.start()
    try:
        for each in range(number):
            remember(each)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < BOUND_BYTES
