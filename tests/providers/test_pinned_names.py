"""The names that are kept of a server, and the pace at which it may rename its tools."""

import pytest

from toolpost.base.ids import ToolName
from toolpost.providers import pinned_names
from toolpost.providers.pinned_names import (
    KEPT_S,
    NAMES_LIMIT,
    RENAMES_LIMIT,
    RENAMES_S,
    SIZE_LIMIT_BYTES,
    Pin,
    PinnedNames,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pinned_names, "time", clock)
    return clock


def names_of(begin: int, end: int) -> list[ToolName]:
    return [ToolName(f"maps__{number}") for number in range(begin, end)]


def list_tools(pinned: PinnedNames, names: list[ToolName], size_bytes: int = 100) -> tuple[int, int]:
    """List tools; returns how many were pinned, and how many forgotten for them."""
    pinned.begin_listing(names)
    new = {name: Pin(b"", size_bytes) for name in names if pinned.get(name) is None}
    selected = pinned.select_new(new)
    forgotten = [each for name in selected for each in pinned.add(name, new[name])]
    return len(selected), len(forgotten)


@pytest.mark.usefixtures("clock")
def test_the_first_listing_and_more_tools_are_taken_whole() -> None:
    pinned = PinnedNames()

    assert list_tools(pinned, []) == (0, 0)
    assert list_tools(pinned, names_of(0, 3)) == (3, 0)
    assert list_tools(pinned, names_of(0, NAMES_LIMIT)) == (NAMES_LIMIT - 3, 0)
    assert list_tools(pinned, names_of(0, NAMES_LIMIT)) == (0, 0)
    assert pinned.problem is None


@pytest.mark.usefixtures("clock")
def test_a_restart_with_the_same_names_renames_nothing() -> None:
    pinned = PinnedNames()
    pinned.replace(dict.fromkeys(names_of(0, NAMES_LIMIT), Pin(b"", 100)))

    assert list_tools(pinned, names_of(0, NAMES_LIMIT)) == (0, 0)
    assert pinned.problem is None


def test_names_in_place_of_others_have_a_limit_in_an_hour(clock: Clock) -> None:
    pinned = PinnedNames()
    list_tools(pinned, names_of(0, 5_000))
    fine, _ = list_tools(pinned, names_of(5_000, 5_000 + RENAMES_LIMIT))
    before = pinned.problem
    # Once more what is there, and what was there before: no new names.
    list_tools(pinned, names_of(0, 5_000))
    beyond, _ = list_tools(pinned, names_of(10_000, 13_000))
    during = pinned.problem
    clock.now += RENAMES_S
    later, _ = list_tools(pinned, names_of(10_000, 13_000))
    rest = pinned.problem
    list_tools(pinned, names_of(0, 5_000))
    still = pinned.problem
    clock.now += RENAMES_S

    assert (fine, before) == (RENAMES_LIMIT, None)
    assert beyond == 0
    assert during is not None
    assert "at most 2,000 names in an hour" in during
    assert "3,000 tools with new names are left out" in during
    assert later == RENAMES_LIMIT
    assert rest is not None
    assert "1,000 tools" in rest
    assert still is not None, "it stays visible for the hour"
    assert pinned.problem is None


def test_the_names_that_were_seen_last_stay(clock: Clock) -> None:
    pinned = PinnedNames()
    list_tools(pinned, names_of(0, NAMES_LIMIT))
    # The first one is listed all the time; the others give way to new names, those first that were not listed for longest.
    listed = names_of(0, 1)
    for begin in range(NAMES_LIMIT, NAMES_LIMIT + 3 * RENAMES_LIMIT, RENAMES_LIMIT):
        list_tools(pinned, listed)
        clock.now += KEPT_S
        assert list_tools(pinned, [*listed, *names_of(begin, begin + RENAMES_LIMIT)]) == (RENAMES_LIMIT, RENAMES_LIMIT)

    assert len(pinned) == NAMES_LIMIT
    kept = [name for name in names_of(0, NAMES_LIMIT + 3 * RENAMES_LIMIT) if pinned.get(name) is not None]
    assert kept == names_of(0, 1) + names_of(3 * RENAMES_LIMIT + 1, NAMES_LIMIT + 3 * RENAMES_LIMIT)


@pytest.mark.parametrize("is_large", [False, True], ids=["many", "large"])
def test_a_pin_is_kept_for_a_day(clock: Clock, is_large: bool) -> None:
    """However many other names there are, or however large their definitions."""
    count, size = (8, SIZE_LIMIT_BYTES // 16) if is_large else (NAMES_LIMIT, 100)
    pinned = PinnedNames()
    list_tools(pinned, names_of(0, 1))
    for hour in range(23):
        clock.now += RENAMES_S
        list_tools(pinned, names_of((hour + 1) * NAMES_LIMIT, (hour + 1) * NAMES_LIMIT + count), size)

    assert pinned.get(ToolName("maps__0")) is not None
    assert pinned.problem is not None
    clock.now += RENAMES_S
    selected, forgotten = list_tools(pinned, names_of(99 * NAMES_LIMIT, 99 * NAMES_LIMIT + count), size)
    assert selected >= 1
    assert forgotten >= 1
    assert pinned.get(ToolName("maps__0")) is None
