"""Gauges of parts: one that fails is left out of the metrics, and named in the log."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.host.test_contributions import one_part
from toolpost.app import open_app
from toolpost.parts import Gauges
from toolpost.testing import IN_MEMORY

pytestmark = pytest.mark.anyio


async def read_later() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda: 1 // 0, "by zero"),
        (lambda: None, "`read` of `Gauges` returned None, not a dict"),
        (read_later, "`read` of `Gauges` is asynchronous"),
        (lambda: {"toolpost_probe": 3}, "the gauge `toolpost_probe` is a value of type int"),
        (lambda: {"toolpost-probe": ("What.", 3)}, "`toolpost-probe` is no name of a metric"),
        (lambda: {"toolpost_tools": ("Mine.", 3)}, "there is a gauge `toolpost_tools` already"),
        (lambda: {"toolpost_fine": ("Mine.", 3)}, "there is a gauge `toolpost_fine` already"),
    ],
)
async def test_a_gauge_that_fails_does_not_hide_the_others(
    read: Callable[[], Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    parts = [one_part("fine", Gauges(lambda: {"toolpost_fine": ("Fine.", 7)})), one_part("probe", Gauges(read))]
    async with open_app(IN_MEMORY, bundled=False, parts=parts) as app:
        with caplog.at_level(logging.ERROR):
            shown = app.monitor.metrics()

    assert "toolpost_fine 7.0" in shown
    assert "toolpost_tools 0.0" in shown
    assert says in caplog.text
    assert [record.__dict__["fields"]["part"] for record in caplog.records] == ["probe"]
