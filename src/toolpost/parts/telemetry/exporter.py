"""Sends spans and metrics in a thread of its own: a call only appends to a queue.

The queue is bounded. While the receiver is away or slow, a batch is tried again with growing pauses, the queue fills up, and what
comes then is dropped and counted: calls neither wait nor fail. The log says once that a receiver does not take anything, and once
that it does again.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

from toolpost import __version__
from toolpost.base import event
from toolpost.parts.telemetry.histograms import Histograms
from toolpost.parts.telemetry.senders import NotSent, Sender, make_sender
from toolpost.parts.telemetry.settings import TelemetrySpec
from toolpost.parts.telemetry.spans import key_values, write_varint

_log = logging.getLogger("toolpost.telemetry")

FLUSH_LIMIT_S: Final = 2.0
"""How long closing may take: a receiver that is away must not keep the process."""
ATTEMPTS: Final = 6
FIRST_PAUSE_S: Final = 1.0
"""Doubled after each attempt: a batch is given up after half a minute."""

_SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.40.0"


class Exporter:
    """The queue, and the thread that empties it."""

    def __init__(self, spec: TelemetrySpec, histograms: Histograms) -> None:
        self._spec = spec
        self._histograms = histograms
        self._resource = Resource(attributes=key_values(spec.resource))
        self._scope = InstrumentationScope(name="toolpost", version=__version__)
        scoped = ScopeSpans(scope=self._scope, schema_url=_SCHEMA_URL).SerializeToString()
        self._scope_head = scoped
        self._resource_head = ResourceSpans(resource=self._resource).SerializeToString()
        self._traces = _Outlet(make_sender(spec.traces, "traces"), "traces") if spec.traces is not None else None
        self._metrics = _Outlet(make_sender(spec.metrics, "metrics"), "metrics") if spec.metrics is not None else None
        self._queue: deque[tuple[bytes, int]] = deque()
        """Chunks of spans, and how many each holds. Appended by the event loop, taken by the thread."""
        self._put = self._taken = 0
        """How many spans were ever appended and taken. Each is written by one thread alone."""
        self._limit = spec.queue_limit if self._traces is not None else 0
        self._batch_size = spec.batch_size
        self._wake = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="toolpost-telemetry", daemon=True)
        self.dropped = 0
        """Spans that were never sent. Written by both threads, so that some may rarely be missed."""
        self._has_warned = False
        self.before_sending: Callable[[], None] = lambda: None
        """Called by the thread before it looks into the queue."""

    @property
    def has_traces(self) -> bool:
        """Whether spans are sent at all."""
        return self._traces is not None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, spans: Sequence[bytes], count: int) -> None:
        """Queue so many spans, or drop them if the queue is full. Never waits; on the event loop alone."""
        waiting = self._put - self._taken + count
        if waiting > self._limit:
            self._drop(count)
        else:
            self._put += count
            self._queue.append((b"".join(spans), count))
            if waiting >= self._batch_size and not self._wake.is_set():
                self._wake.set()

    def close(self) -> None:
        """Send what is queued, as far as that is possible within `FLUSH_LIMIT_S`. Blocks."""
        self._is_closing = True
        self._wake.set()
        self._thread.join(FLUSH_LIMIT_S)

    def _drop(self, count: int) -> None:
        self.dropped += count
        if not self._has_warned and self._traces is not None:
            self._has_warned = True
            hint = "look at the receiver, or raise telemetry.queue; `toolpost_telemetry_dropped_total` counts them"
            event(_log, logging.WARNING, "spans dropped", queue=self._limit, hint=hint)

    def _run(self) -> None:
        metrics_at = time.monotonic() + self._spec.interval_s
        while not self._is_closing:
            self._wake.wait(min(self._spec.delay_s, max(0.05, metrics_at - time.monotonic())))
            self._wake.clear()
            self.before_sending()
            self._send_spans()
            if time.monotonic() >= metrics_at:
                metrics_at = time.monotonic() + self._spec.interval_s
                self._send_metrics()
        self._send_spans()
        self._send_metrics()
        for outlet in (self._traces, self._metrics):
            if outlet is not None:
                outlet.close()

    def _send_spans(self) -> None:
        while self._traces is not None and self._queue:
            batch, count = self._take_batch()
            if not self._traces.send(self._write_request(batch), self._may_go_on):
                self._drop(count)
            # Only now: what is being sent counts as waiting.
            self._taken += count
            if self._is_closing and not self._traces.is_available:
                self._drop(self._put - self._taken)
                return

    def _take_batch(self) -> tuple[list[bytes], int]:
        batch, count = list[bytes](), 0
        while self._queue and count < self._batch_size:
            chunk, spans = self._queue.popleft()
            batch.append(chunk)
            count += spans
        return batch, count

    def _send_metrics(self) -> None:
        if self._metrics is not None:
            body = self._histograms.write(self._resource, self._scope, time.time_ns(), dropped=self.dropped)
            # The next ones contain these: there is no need to try again.
            self._metrics.send(body, lambda _pause_s: False)

    def _may_go_on(self, pause_s: float) -> bool:
        """Pause before another attempt; False if there is to be none, because the gateway closes."""
        end = time.monotonic() + pause_s
        while not self._is_closing and (left_s := end - time.monotonic()) > 0:
            time.sleep(min(left_s, 0.1))
        return not self._is_closing

    def _write_request(self, spans: Sequence[bytes]) -> bytes:
        # Put together in one step: a batch is half a megabyte, and each message within another would copy it once more.
        scoped = len(self._scope_head) + sum(map(len, spans))
        head = b"%b\x12%b%b" % (self._resource_head, write_varint(scoped), self._scope_head)
        length = len(head) + scoped - len(self._scope_head)
        return b"".join((b"\x0a", write_varint(length), head, *spans))


class _Outlet:
    """A receiver of one signal, and whether it is there."""

    def __init__(self, sender: Sender, signal: str) -> None:
        self._sender = sender
        self._signal = signal
        self.is_available = True

    def send(self, body: bytes, may_go_on: Callable[[float], bool]) -> bool:
        """Send a request, with several attempts; False if it was not taken."""
        for attempt in range(ATTEMPTS):
            try:
                self._sender.send(body)
            except NotSent as failure:
                self._note_failure(str(failure))
                if not failure.may_retry or attempt == ATTEMPTS - 1 or not may_go_on(FIRST_PAUSE_S * 2**attempt):
                    return False
            except Exception as failure:  # noqa: BLE001 (the thread must go on, whatever a receiver does)
                self._note_failure(f"{type(failure).__name__}: {failure}")
                return False
            else:
                self._note_success()
                return True
        return False

    def close(self) -> None:
        self._sender.close()

    def _note_failure(self, reason: str) -> None:
        if self.is_available:
            self.is_available = False
            event(_log, logging.WARNING, "telemetry not sent", signal=self._signal, reason=reason)

    def _note_success(self) -> None:
        if not self.is_available:
            self.is_available = True
            event(_log, logging.INFO, "telemetry is sent again", signal=self._signal)
