"""Durations by tool: bounded in number, and never decreasing."""

import random
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from toolpost.metrics import OTHER, CallDurations, Counter, Durations, Gauge, Metrics, MetricValues


def shown(durations: CallDurations) -> dict[tuple[str, str, str], int]:
    return {labels: found.count for labels, found in durations.series()}


def test_what_does_not_fit_is_other() -> None:
    durations = CallDurations(top=2)
    for tool, count in (("a", 5), ("b", 4), ("c", 1)):
        for _ in range(count):
            durations.observe("s", tool, "OK", 0.1)

    assert shown(durations) == {("s", "a", "OK"): 5, ("s", "b", "OK"): 4, ("s", OTHER, "OK"): 1}
    # Called far more often than another, it takes its place; what it had before stays where it was shown.
    for _ in range(20):
        durations.observe("s", "c", "OK", 0.1)
    assert shown(durations) == {("s", "a", "OK"): 5, ("s", OTHER, "OK"): 21}
    durations.observe("s", "c", "OK", 0.1)
    durations.observe("s", "b", "OK", 0.1)
    assert shown(durations) == {("s", "a", "OK"): 5, ("s", "c", "OK"): 1, ("s", OTHER, "OK"): 22}


def test_no_series_ever_decreases() -> None:
    chosen = random.Random(7)
    durations, before, total = CallDurations(top=5), dict[tuple[str, str, str], int](), 0
    for _ in range(200):
        for _ in range(chosen.randrange(30)):
            tool = f"t{min(int(chosen.expovariate(0.2)), 40)}"
            durations.observe(chosen.choice("xy"), tool, chosen.choice(("OK", "TIMEOUT")), 0.01)
            total += 1
        now = shown(durations)
        assert {name[:2] for name in now if name[1] != OTHER} <= set(durations._shown)
        assert len({name[:2] for name in now if name[1] != OTHER}) <= 5
        for labels, count in now.items():
            # One that was displaced begins anew, as after a restart.
            assert count >= before.get(labels, 0) or labels[1] != OTHER
        before = now
    assert sum(found.count for found in durations.by_code().values()) == total


def test_servers_that_rename_their_tools_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.metrics.SERIES_LIMIT", 10)
    durations = CallDurations(top=2)
    for number in range(100):
        durations.observe("s", f"t{number}", "OK", 0.1)

    assert len(durations._counted) == 11
    assert sum(shown(durations).values()) == 100


def test_the_text_can_be_read_by_prometheus() -> None:
    metrics = Metrics()
    metrics.add(Counter("toolpost_x_total", "A counter of a part.", label="why")).add(2, of='q"uo\\te\n')
    metrics.durations.observe("s", "t", "OK", 0.0025)
    metrics.durations.observe("s", "t", "OK", 1000)
    gauges: MetricValues = {
        "toolpost_y": ("One value.", 3.5),
        "toolpost_z": Gauge("Two.", ("a", "b"), {("1", "2"): 1.0}),
    }
    commits = Durations()
    commits.observe(0.5)
    text = metrics.text(gauges, {"toolpost_w_total": ("Another.", 4)}, commits)
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }

    assert samples["toolpost_x_total", (("why", 'q"uo\\te\n'),)] == 2
    assert samples["toolpost_w_total", ()] == 4
    assert samples["toolpost_y", ()] == 3.5
    assert samples["toolpost_z", (("a", "1"), ("b", "2"))] == 1
    assert samples["toolpost_call_duration_seconds_count", (("code", "OK"), ("server", "s"), ("tool", "t"))] == 2
    bucket = (("code", "OK"), ("le", "0.0025"), ("server", "s"), ("tool", "t"))
    assert samples["toolpost_call_duration_seconds_bucket", bucket] == 1
    assert samples["toolpost_calls_total", (("code", "OK"),)] == 2
    assert samples["toolpost_call_seconds_total", ()] == 1000.0025
    assert samples["toolpost_commit_duration_seconds_sum", ()] == 0.5
    assert not re.search(r"^# TYPE (\S+) .*\n(?:.*\n)*# TYPE \1 ", text, re.MULTILINE)
