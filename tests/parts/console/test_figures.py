"""Figures of calls: the last hour against the hour before, with percentiles where enough calls were seen."""

from itertools import chain

from toolpost.parts.console.figures import TOOLS, SampledCall, summarize

MINUTES = [f"2026-03-01T12:{minute:02}" for minute in range(60)]


def calls(tool: str, count: int, *, failed: int = 0, minute: str = MINUTES[30], ms: float = 5.0) -> list[SampledCall]:
    source = tool.partition("__")[0]
    return [(minute, source, tool, int(number < failed), ms) for number in range(count)]


def test_the_hour_is_compared_with_the_hour_before_by_server_and_tool() -> None:
    seen = [
        *calls("up__a", 40, failed=30),
        *calls("up__a", 10, failed=1, minute="2026-03-01T11:59"),
        *calls("up__b", 7, minute=MINUTES[-1]),
        *calls("up__b", 3, minute="2026-03-01T13:00"),
        *calls("down__c", 5, failed=5),
    ]
    found = summarize(seen, 1.0, minutes=MINUTES, servers=["up", "idle"])

    total = found["total"]
    assert (total["now"]["calls"], total["now"]["failed"]) == (52, 35)
    assert (total["before"]["calls"], total["before"]["failed"]) == (10, 1)
    assert (total["calls"][30], total["calls"][59], total["failed"][30]) == (45, 7, 35)
    assert found["servers"].keys() == {"up", "idle"}
    assert found["servers"]["up"]["now"]["calls"] == 47
    assert found["servers"]["idle"]["now"]["calls"] == 0
    assert [(each["tool"], each["now"]["failed"]) for each in found["tools"]] == [
        ("up__a", 30),
        ("down__c", 5),
        ("up__b", 0),
    ]
    assert (found["toolsCalled"], found["isSampled"]) == (3, False)


def test_percentiles_are_nearest_ranks_and_left_out_of_too_few_calls() -> None:
    def percentiles(count: int) -> list[float | None]:
        seen = [(MINUTES[0], "up", "up__a", 0, float(number)) for number in range(count, 0, -1)]
        now = summarize(seen, 1.0, minutes=MINUTES, servers=[])["total"]["now"]
        return [now["p50Ms"], now["p95Ms"], now["p99Ms"]]

    assert percentiles(200) == [100.0, 190.0, 198.0]
    assert percentiles(99) == [50.0, 95.0, None]
    assert percentiles(19) == [10.0, None, None]
    assert percentiles(0) == [None, None, None]


def test_a_sample_stands_for_all_calls_and_the_worst_tools_come_first() -> None:
    seen = chain.from_iterable(
        calls(f"up__{number}", 2, failed=number == 77, ms=float(number)) for number in range(100)
    )
    found = summarize(seen, 20.0, minutes=MINUTES, servers=["up"])

    assert found["isSampled"]
    assert found["total"]["now"]["calls"] == found["servers"]["up"]["calls"][30] == 4_000
    assert (len(found["tools"]), found["toolsCalled"]) == (TOOLS, 100)
    assert [each["tool"] for each in found["tools"][:3]] == ["up__77", "up__99", "up__98"]
