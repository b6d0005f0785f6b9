"""What is said where the extra of a bundled part is not installed."""

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_telemetry_says_how_to_install_it(invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.trace.v1.trace_pb2", None)
    (tmp_path / "toolpost.toml").write_text('[telemetry]\nendpoint = "http://127.0.0.1:9"\n')

    told = invoke("tools").err

    assert "plugin `telemetry` could not be opened: Telemetry needs the extra `otel`; pip install" in told
