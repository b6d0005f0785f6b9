"""Wrong tokens are counted and logged, and neither flood the log nor get into it."""

import logging

import pytest

from toolpost.base import log_limit
from toolpost.endpoints.auth.rejected import RejectedTokens
from toolpost.metrics import Metrics


def test_one_line_stands_for_many_requests(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now, metrics = [100.0], Metrics()
    monkeypatch.setattr("toolpost.base.log_limit.time.monotonic", lambda: now[0])
    tokens = RejectedTokens(metrics.tokens_rejected)
    for _ in range(50):
        tokens.note("/mcp", "unknown token")
    now[0] += log_limit.INTERVAL_S
    tokens.note("/mcp", "unknown token")
    monkeypatch.undo()

    lines = [record for record in caplog.records if record.message == "token refused"]
    assert [(line.levelno, line.__dict__["fields"]["requests"]) for line in lines] == [
        (logging.WARNING, 1),
        (logging.WARNING, 50),
    ]
    assert metrics.tokens_rejected.value() == 51
