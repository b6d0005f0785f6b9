"""Split a byte stream into lines of bounded length. No I/O."""

from collections.abc import Iterator


class OversizedLine(bytes):
    """Stands for a line that exceeded the limit; only its first 256 bytes are kept."""


class LineSplitter:
    """Splits a stream at newlines; buffers at most one line of `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Not a list of chunks: a line that arrives byte by byte would take forty times the memory.
        self._buffer = bytearray()
        self._is_skipping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take a chunk, and yield the lines that it completes, without line ends. Blank lines are skipped."""
        if not self._buffer and not self._is_skipping and data.find(b"\n") == len(data) - 1 <= self._limit:
            # Nearly every chunk is exactly one line.
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
        if not self._buffer and not self._is_skipping and len(end) <= self._limit:
            return end
        self._keep(end)
        line = bytes(self._buffer)
        self._buffer.clear()
        if self._is_skipping:
            self._is_skipping = False
            return OversizedLine(line)
        return line

    def _keep(self, part: bytes) -> None:
        if self._is_skipping or not part:
            return
        if len(self._buffer) + len(part) > self._limit:
            self._is_skipping = True
            self._buffer += part[:256]
            del self._buffer[256:]
        else:
            self._buffer += part
