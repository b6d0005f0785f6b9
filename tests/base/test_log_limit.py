"""Log lines of strangers are limited, whoever they are."""

import pytest

from toolpost.base import log_limit
from toolpost.base.log_limit import INTERVAL_S, KEYS_LIMIT, LogLimit


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr(log_limit, "time", type("Clock", (), {"monotonic": staticmethod(lambda: clock[0])}))
    return clock


def test_a_key_has_so_many_lines_and_the_next_stands_for_the_rest(now: list[float]) -> None:
    limit = LogLimit(lines=3)

    assert [limit.take("a") for _ in range(10)] == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert limit.take("b") == 1
    now[0] += INTERVAL_S
    assert [limit.take("a") for _ in range(4)] == [8, 1, 1, 0]


def test_any_number_of_keys_shares_one_limit(now: list[float]) -> None:
    limit = LogLimit(lines=1)

    due = sum(limit.take(f"caller {number}") > 0 for number in range(10 * KEYS_LIMIT))
    assert due == KEYS_LIMIT + 1
    now[0] += INTERVAL_S
    assert limit.take("another") == 1
