"""Bytes into lines, with an upper bound on a line: no I/O."""

from collections.abc import Iterator


class OversizedLine(bytes):
    """Stands for a line that was longer than the limit; its first bytes are kept, the rest is gone."""


class LineSplitter:
    """Cuts a stream at newlines, and never holds more than one line's limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Not a list of parts: of single bytes that would take forty times the room.
        self._held = bytearray()
        self._is_skipping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take a chunk, give the lines that it completes, without their ends. Empty lines are nothing."""
        if not self._held and not self._is_skipping and data.find(b"\n") == len(data) - 1 <= self._limit:
            # What nearly every chunk is: one whole line.
            if data.strip():
                yield data[:-1]
            return
        *ends, rest = data.split(b"\n")
        for end in ends:
            line = self._complete(end)
            if isinstance(line, OversizedLine) or line.strip():
                yield line
        self._keep(rest)

    def _complete(self, end: bytes) -> bytes:
        if not self._held and not self._is_skipping and len(end) <= self._limit:
            return end
        self._keep(end)
        line = bytes(self._held)
        self._held.clear()
        if self._is_skipping:
            self._is_skipping = False
            return OversizedLine(line)
        return line

    def _keep(self, part: bytes) -> None:
        if self._is_skipping or not part:
            return
        if len(self._held) + len(part) > self._limit:
            self._is_skipping = True
            self._held += part[:256]
            del self._held[256:]
        else:
            self._held += part
