"""What is said where the extra of a bundled part is not installed."""

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from toolpost.parts.telemetry.doctor import TelemetryDoctor
from toolpost.settings import load_config


def test_telemetry_says_how_to_install_it(invoke: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.trace.v1.trace_pb2", None)
    (tmp_path / "toolpost.toml").write_text('[telemetry]\nendpoint = "http://127.0.0.1:9"\n')

    told = invoke("tools").err

    assert "part `telemetry` could not be opened: Telemetry needs the extra `otel`; pip install" in told


@pytest.mark.anyio
async def test_doctor_names_the_section_that_needs_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.parts.telemetry.doctor.find_spec", lambda _name: None)
    (tmp_path / "toolpost.toml").write_text('[telemetry]\nendpoint = "http://127.0.0.1:9"\n')

    [found] = await TelemetryDoctor().check_setup(load_config(tmp_path / "toolpost.toml"))

    assert found.level == "problem"
    assert found.message == "[telemetry] needs the extra `otel`, which is not installed"
    assert found.hint == 'pip install "toolpost[otel]"'
