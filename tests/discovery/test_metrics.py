"""What is counted, and the page that says so."""

import re
from pathlib import Path

import msgspec
import pytest

from tests.discovery.asking import office
from tests.ways import IN_MEMORY, QUICK_WAYS, ROOT, Way
from toolpost.app import open_app
from toolpost.parts.results.settings import RESULTS, ResultSettings
from toolpost.parts.telemetry.settings import TELEMETRY, TelemetrySettings
from toolpost.settings.audit import AuditSettings

pytestmark = pytest.mark.anyio

PAGE = Path(ROOT / "docs/reference/metrics.md")


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_calls_are_counted_by_their_code(way: Way) -> None:
    async with office() as app, way.client_of(app) as client:
        await client.call_tool("wiki__list_page", {"page_id": "1"})
        await client.call_tool("wiki__list_page", {"page_id": "2"})
        await client.call_tool("wiki__list_page", {})
        page = app.monitor.metrics().splitlines()

    assert 'toolpost_calls_total{code="OK"} 2.0' in page
    assert 'toolpost_calls_total{code="INVALID_PARAMS"} 1.0' in page
    assert 'toolpost_call_duration_seconds_count{code="OK",server="wiki",tool="wiki__list_page"} 2.0' in page
    assert "toolpost_calls_in_flight 0.0" in page
    assert "toolpost_tools 61.0" in page


async def test_every_metric_is_on_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    config = TELEMETRY.put(IN_MEMORY, TelemetrySettings(enabled=True))
    config = msgspec.structs.replace(config, audit=AuditSettings(days=30))
    config = RESULTS.put(config, ResultSettings(limit_tokens=1_000))
    async with open_app(config) as app:
        told = {line.split()[2] for line in app.monitor.metrics().splitlines() if line.startswith("# TYPE toolpost_")}

    assert set(re.findall(r"^\| `(toolpost_\w+)", PAGE.read_text(), re.MULTILINE)) == told
