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


def test_a_tool_that_needs_an_extra_leads_to_the_doctor(
    invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "toolpost.parts.approvals.vrf", None)
    monkeypatch.delattr("toolpost.parts.approvals.vrf", raising=False)
    (tmp_path / "toolpost.toml").write_text('[plugins]\nbundled = ["approvals"]\n')

    refused = invoke("call", "approvals__vrf_eval", "input_hex=00")

    assert refused.code == 2
    assert "`toolpost doctor` those whose extra is not installed" in refused.err
