"""Server-sent events of the handshake era, kept so that a client that lost its connection can ask for the rest.

In that era a dropped connection is not a cancellation: the call goes on, and its events are added to the log of its stream. A
client reconnects with `GET` and `Last-Event-ID`, receives the later events, and follows the stream to its end. A log
is kept while its call runs and for `KEPT_S` afterwards; a session has `LOGS_LIMIT` logs of `SIZE_LIMIT` bytes each, and of calls
that have ended `ENDED_BYTES` in all.
"""

import time
from collections.abc import AsyncIterator
from typing import Final

import anyio

KEPT_S: Final = 300.0
LOGS_LIMIT: Final = 32
SIZE_LIMIT: Final = 1024 * 1024
ENDED_BYTES: Final = 4 * 1024 * 1024
RETRY_MS: Final = 1_000


class EventLog:
    """The events of one response stream. `prime`, `add` and `end` return the bytes to write, whether or not a client is
    connected.
    """

    def __init__(self, stream_id: str, *, primes: bool) -> None:
        """`primes` is for clients of 2025-11-25 and later: older ones do not expect an event without data."""
        self.id = stream_id
        self.ended_at: float | None = None
        self._primes = primes
        self._events: list[bytes] = []
        self.size = 0
        """Bytes of the events that are kept."""
        self._more = anyio.Event()

    def prime(self) -> bytes:
        """Return the first event: its id, and how long to wait before reconnecting."""
        retry = b"retry: %d\r\n" % RETRY_MS
        return b"id: %b:0\r\n%bdata: \r\n\r\n" % (self.id.encode(), retry) if self._primes else retry + b"\r\n"

    def add(self, raw: bytes) -> bytes:
        """Return a message as an event, and keep it. A stream larger than `SIZE_LIMIT` can no longer be resumed."""
        event = b"id: %b:%d\r\nevent: message\r\ndata: %b\r\n\r\n" % (self.id.encode(), len(self._events) + 1, raw)
        self._events.append(event)
        self.size += len(event)
        if self.size > SIZE_LIMIT:
            self._events = [b""] * len(self._events)
            self.size = 0
        self._notify()
        return event

    def end(self, raw: bytes) -> bytes:
        """Add the answer, which is the last event."""
        event = self.add(raw)
        self.ended_at = time.monotonic()
        self._notify()
        return event

    def may_resume(self, after: int) -> bool:
        """Whether everything after this event is still kept."""
        return 0 <= after <= len(self._events) and all(self._events[after:])

    async def follow(self, after: int) -> AsyncIterator[bytes]:
        """Yield the events after this one, and new ones as they come, to the end of the stream."""
        while True:
            more = self._more
            while after < len(self._events):
                yield self._events[after]
                after += 1
            if self.ended_at is not None:
                return
            await more.wait()

    def _notify(self) -> None:
        self._more.set()
        self._more = anyio.Event()


class EventLogs:
    """The logs of one session."""

    def __init__(self) -> None:
        self._logs: dict[str, EventLog] = {}

    def open(self, stream_id: str, *, primes: bool) -> EventLog:
        """Begin the log of a stream; expired logs, then the oldest, make room."""
        self.remove_expired()
        ended = [log for log in self._logs.values() if log.ended_at is not None]
        excess = sum(log.size for log in ended) - ENDED_BYTES
        for log in ended:
            if excess > 0:
                excess -= log.size
                del self._logs[log.id]
        while len(self._logs) >= LOGS_LIMIT:
            del self._logs[next(iter(self._logs))]
        opened = self._logs[stream_id] = EventLog(stream_id, primes=primes)
        return opened

    def remove_expired(self) -> None:
        """Remove the logs of calls that ended `KEPT_S` ago."""
        oldest = time.monotonic() - KEPT_S
        for log in [log for log in self._logs.values() if log.ended_at is not None and log.ended_at < oldest]:
            del self._logs[log.id]

    def find(self, event_id: str) -> tuple[EventLog, int] | None:
        """Return the log of an event and its number there; None if it is unknown or can no longer be resumed."""
        stream_id, _, number = event_id.rpartition(":")
        log = self._logs.get(stream_id)
        if log is None or not number.isdecimal() or len(number) > 9 or not log.may_resume(int(number)):
            return None
        return log, int(number)
