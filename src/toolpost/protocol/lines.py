"""Bytes into lines, with an upper bound on a line: no I/O."""

from collections.abc import Iterator


class TooLong(bytes):
    """Stands for a line that was longer than the limit; its first bytes are kept, the rest is gone."""


class LineSplitter:
    """Cuts a stream at newlines, and never holds more than one line's limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._is_skipping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take a chunk, give the lines that it completes, without their ends. Empty lines are nothing."""
        if not self._parts and not self._is_skipping and data.find(b"\n") == len(data) - 1 <= self._limit:
            # What nearly every chunk is: one whole line.
            if data.strip():
                yield data[:-1]
            return
        *ends, rest = data.split(b"\n")
        for end in ends:
            line = self._complete(end)
            if isinstance(line, TooLong) or line.strip():
                yield line
        self._keep(rest)

    def _complete(self, end: bytes) -> bytes:
        self._keep(end)
        line = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        if self._is_skipping:
            self._is_skipping = False
            return TooLong(line)
        return line

    def _keep(self, part: bytes) -> None:
        if self._is_skipping or not part:
            return
        self._size += len(part)
        if self._size > self._limit:
            self._is_skipping = True
            self._parts = [(self._parts[0] if self._parts else part)[:256]]
        else:
            self._parts.append(part)
