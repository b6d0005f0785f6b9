"""OpenTelemetry as a part. Nothing else of it is imported unless telemetry is on."""

import asyncio
import contextlib
import logging
import os
import platform
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolpost import CapabilityMissing
from toolpost.base import event
from toolpost.parts.telemetry.settings import (
    OFF_HINT,
    TELEMETRY,
    has_no_receiver,
    is_asked_by_variables,
    is_enabled,
    resolve,
)

if TYPE_CHECKING:
    from toolpost.parts import Host

_log = logging.getLogger("toolpost.telemetry")

_FLUSH_S = 1.0


@asynccontextmanager
async def open_telemetry(host: "Host") -> AsyncIterator[Sequence[object]]:
    """Bring the observer of all requests."""
    settings = TELEMETRY.of(host.config)
    if not is_enabled(settings):
        if has_no_receiver(settings) and not host.for_one_command:
            event(_log, logging.WARNING, "telemetry is off", reason="no receiver is named", hint=OFF_HINT)
        yield ()
        return
    try:
        import opentelemetry.proto.trace.v1.trace_pb2  # noqa: F401
    except ImportError as error:
        message, hint = "Telemetry needs the extra `otel`.", 'pip install "toolpost[otel]"'
        if settings.enabled or settings.endpoint or not is_asked_by_variables():
            raise CapabilityMissing(message, hint=hint) from error
        # Variables in the environment are often meant for another program.
        event(_log, logging.INFO, "telemetry is off", reason=message, hint=hint)
        yield ()
        return
    import time

    from anyio import CancelScope, to_thread

    from toolpost import __version__
    from toolpost.metrics import Counter
    from toolpost.parts import PluginCandidate
    from toolpost.parts.telemetry.exporter import Exporter
    from toolpost.parts.telemetry.histograms import Histograms
    from toolpost.parts.telemetry.observer import TelemetryObserver
    from toolpost.parts.telemetry.turns import TurnSpans

    resource = {
        "service.version": __version__,
        "service.instance.id": f"{platform.node()}:{os.getpid()}",
        "host.name": platform.node(),
    }
    spec = resolve(settings, resource=resource)
    histograms = Histograms(time.time_ns())
    exporter = Exporter(spec, histograms)
    observer = TelemetryObserver(spec, exporter, histograms)
    exporter.before_sending = _make_flusher(asyncio.get_running_loop(), observer.write_ended)
    exporter.start()

    class DroppedSpans(Counter):
        """Reads the exporter's own count."""

        def values(self) -> Mapping[str, float]:
            return {"": exporter.dropped}

    host.metrics.add(DroppedSpans("toolpost_telemetry_dropped_total", "Spans that could not be sent."))
    try:
        turns = PluginCandidate(name="telemetry", load=lambda: TurnSpans(observer))
        yield [observer, turns]
    finally:
        observer.write_ended()
        with CancelScope(shield=True):
            await to_thread.run_sync(exporter.close)


def _make_flusher(loop: asyncio.AbstractEventLoop, flush: Callable[[], None]) -> Callable[[], None]:
    """Return a function for another thread: it has the loop flush, and waits for that as long as it makes sense."""

    def run() -> None:
        done = threading.Event()

        def flush_now() -> None:
            flush()
            done.set()

        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(flush_now)
            done.wait(_FLUSH_S)

    return run
