"""What telemetry costs and risks: nothing where it is off, and no call where its receiver is away."""

import logging
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from tests.parts.telemetry.receiver import Receiver, open_receiver
from tests.parts.telemetry.test_spans import open_gateway, plugin, up
from tests.waiting import until
from tests.ways import IN_MEMORY, STATELESS, Way
from toolpost.app import open_app
from toolpost.contracts.errors import BadConfiguration
from toolpost.endpoints.calls import CallHandler
from toolpost.gateway import Gateway
from toolpost.middleware.audit import AuditEnter, AuditExit
from toolpost.middleware.tool_lock import ToolLock
from toolpost.parts.console.settings import CONSOLE, ConsoleSettings
from toolpost.parts.telemetry import exporter as exporters
from toolpost.parts.telemetry import observer as observers
from toolpost.parts.telemetry.settings import TelemetrySettings, is_enabled, resolve
from toolpost.upstreams.peer import Peer

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

OFF_SCRIPT = """
import anyio, sys
from toolpost import Plugin
from toolpost.app import open_app
from toolpost.endpoints.observer import Observer
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings

async def main() -> None:
    async with open_app(Config(store=StoreSettings(url="sqlite::memory:"))) as app:
        assert app.contributions.first(Observer) is None
    print(*sys.modules)

anyio.run(main)
"""


def test_off_nothing_is_imported() -> None:
    ran = subprocess.run([sys.executable, "-c", OFF_SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    loaded = ran.stdout.split()

    assert "toolpost.parts.telemetry.part" in loaded
    assert [name for name in loaded if name.startswith(("opentelemetry.proto", "google.protobuf", "grpc"))] == []
    ours = {name for name in loaded if name.startswith("toolpost.parts.telemetry.")}
    assert ours == {"toolpost.parts.telemetry.part", "toolpost.parts.telemetry.settings"}


async def test_off_the_call_path_is_the_plain_one() -> None:
    """The console notes when a call reaches its steps; without both parts nothing does."""
    config = CONSOLE.put(IN_MEMORY, ConsoleSettings(enabled=False))
    async with open_app(config, plugins=[plugin], bundled=False, servers=[up()]) as app:
        await app.servers.providers["up"].supervisor.ensure_ready()
        pipeline = app.gateway.pipeline
        (instance,) = app.servers.providers["up"].supervisor._pool

        assert type(app.gateway) is Gateway
        assert type(app.call_handler) is CallHandler
        steps = (pipeline._lock, pipeline._audit_enter, pipeline._audit)
        assert [type(step) for step in steps] == [ToolLock, AuditEnter, AuditExit]
        assert type(instance.transport) is Peer


@contextmanager
def deaf_receiver() -> Iterator[Receiver]:
    """Accept connections and never answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield Receiver(url=f"http://127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.parametrize("is_deaf", [True, False])
async def test_a_receiver_that_is_away_slows_no_call(
    is_deaf: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporters, "FLUSH_LIMIT_S", 0.3)
    monkeypatch.setattr(observers, "TOGETHER", 2)
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "40")
    caplog.set_level(logging.INFO, logger="toolpost.telemetry")
    with deaf_receiver() as receiver:
        if not is_deaf:
            receiver.url = "http://127.0.0.1:9"
        async with open_gateway(receiver, up()) as app, Way("memory", STATELESS).client_of(app) as client:
            began = time.monotonic()
            for number in range(30):
                result = await client.call_tool("up__meta", {"number": number})
                assert not result.is_error
            assert time.monotonic() - began < 30
            dropped = float(app.monitor.metrics().split("\ntoolpost_telemetry_dropped_total ")[1].split()[0])
            began = time.monotonic()
        assert time.monotonic() - began < 20
    # 30 calls have 4 spans each, of which 40 have room, and 8 are being sent.
    assert dropped >= 60
    said = [record.getMessage() for record in caplog.records]
    assert said.count("spans dropped") == 1
    assert said.count("telemetry not sent") <= 2


async def test_spans_wait_for_a_receiver_that_comes_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporters, "FIRST_PAUSE_S", 0.1)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    caplog.set_level(logging.INFO, logger="toolpost.telemetry")
    with open_receiver() as receiver:
        receiver.status = 503
        async with open_gateway(receiver) as app, Way("memory", STATELESS).client_of(app) as client:
            await client.call_tool("own__meta", {})
            await until(lambda: receiver.headers)
            receiver.status = 200
            await anyio.to_thread.run_sync(receiver.wait_for, "tools/call own__meta")
            assert "\ntoolpost_telemetry_dropped_total 0" in app.monitor.metrics()
    said = [record.getMessage() for record in caplog.records]
    assert said[:2] == ["telemetry not sent", "telemetry is sent again"]


def test_variables_win_over_the_section() -> None:
    settings = TelemetrySettings(endpoint="http://one:4318", sample=0.5)
    spec = resolve(settings, {})
    assert spec.traces is not None
    assert (spec.traces.url, spec.ratio) == ("http://one:4318/v1/traces", 0.5)
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://two:4318/base/",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://three/as-it-is",
        "OTEL_EXPORTER_OTLP_HEADERS": "a=1,b=x%3Dy",
        "OTEL_TRACES_SAMPLER": "traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.25",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "3000",
    }
    spec = resolve(settings, variables)
    assert spec.traces is not None
    assert spec.metrics is not None
    assert spec.traces.url == "https://two:4318/base/v1/traces"
    assert spec.metrics.url == "http://three/as-it-is"
    assert spec.traces.headers == {"a": "1", "b": "x=y"}
    assert (spec.is_parent_based, spec.ratio, spec.traces.timeout_s) == (False, 0.25, 3.0)
    assert resolve(settings, {"OTEL_TRACES_EXPORTER": "none"}).traces is None


@pytest.mark.parametrize(
    ("settings", "variables", "expected"),
    [
        ({}, {}, False),
        ({}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a"}, True),
        ({"endpoint": "http://a"}, {}, True),
        ({"enabled": False}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, False),
        ({"enabled": True}, {}, True),
        ({"enabled": True}, {"OTEL_SDK_DISABLED": "TRUE"}, False),
    ],
)
def test_when_it_is_on(settings: dict[str, Any], variables: dict[str, str], expected: bool) -> None:
    assert is_enabled(TelemetrySettings(**settings), variables) == expected


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_TRACES_SAMPLER": "jaeger_remote"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
        {"OTEL_BSP_MAX_QUEUE_SIZE": "many"},
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4318"},
    ],
)
def test_what_makes_no_sense_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises(
        BadConfiguration, match=next(iter(variables))[:8] if "ENDPOINT" not in str(variables) else "URL"
    ):
        resolve(TelemetrySettings(), variables)
