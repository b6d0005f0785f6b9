"""Reads the log on disk, whose files `cli/logs/files.py` writes: from its end backwards, or on from where it was last read.

Each process has its own file, one JSON object a line, in the order of time. Pages are read from the ends of all files in turns,
in blocks, so that the last events of a long log cost as little as those of a short one:

    files = LogFiles(folder)
    page = files.read_back({"level": "warning"}, limit=50)                      # the newest 50
    page = files.read_back({"level": "warning"}, limit=50, before=page.before)  # the 50 before
    page = files.read_on({"server": "github"}, files.find_ends())               # what is added from now on

All methods block, and belong into a thread where calls are served. What they read is bounded; a page says if it was cut.
"""

import heapq
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from toolpost.base.ids import JsonObject

PREFIX: Final = "gateway-"
ENDINGS: Final = (".jsonl.1", ".jsonl")
"""The older half of a file, and the newer one."""

BLOCK_BYTES: Final = 64 * 1024
LINE_LIMIT_BYTES: Final = 256 * 1024
"""Longer lines are not parsed: parsing one stops all threads of the process as long as it takes."""
READ_LIMIT_BYTES: Final = 8 * 1024 * 1024
"""How much is read for a page."""

_HEAD: Final = re.compile(rb'\{"ts": "([0-9T:.+-]{10,40})"(?:, "level": "(\w+)")?')
"""Begins each line of the log: the order of pages is that of these times."""
_QUOTED: Final = re.compile(r'["\\]')
"""Written in another way in JSON."""
_LEVELS: Final = logging.getLevelNamesMapping()

_IDS: Final = ("caller", "call", "trace", "tool", "code")

Position = Mapping[int, int]
"""Up to where each file counts, by inode: a file that is rotated gets another name."""


@dataclass(frozen=True, kw_only=True)
class LogPage:
    """Events of the log."""

    events: list[JsonObject]
    before: Position
    """Where the page before begins; empty at the beginning of the log. Of `read_on`: where the next one begins."""
    is_cut: bool = False
    """Whether reading ended at its limit, and not for want of matching events."""


@dataclass(frozen=True)
class LogFiles:
    """The files of a folder."""

    folder: Path

    def find_ends(self) -> Position:
        """Return where all files end now."""
        found: dict[int, int] = {}
        for path in list_log_files(self.folder):
            with suppress(OSError):
                status = path.stat()
                found[status.st_ino] = status.st_size
        return found

    def read_back(self, wanted: Mapping[str, str], *, limit: int, before: Position | None = None) -> LogPage:
        """Return the newest events that are wanted, newest first; with `before`, of those before a position.

        `wanted` has any of `level` (the lowest), `server`, `caller`, `call`, `trace`, `tool`, `code`, `since` and `until`, which
        are times in UTC.
        """
        matching, budget = _Matching.of(wanted), _Budget()
        found: list[JsonObject] = []
        with ExitStack() as stack:
            at: dict[int, int] = {}
            lines = []
            for path in list_log_files(self.folder):
                with suppress(OSError):
                    file = stack.enter_context(path.open("rb"))
                    status = os.fstat(file.fileno())
                    end = status.st_size if before is None else min(before.get(status.st_ino, 0), status.st_size)
                    if matching.until:
                        end = _find_end(file, end, matching.until)
                    at[status.st_ino] = end
                    lines.append(_read_back(file, status.st_ino, end, budget))
            for line in heapq.merge(*lines, key=lambda each: each.ts, reverse=True):
                if matching.since and line.ts and line.ts < matching.since:
                    at.clear()
                    break
                at[line.inode] = line.start
                if (event := matching.parse(line)) is not None:
                    found.append(event)
                if len(found) >= limit or budget.is_spent:
                    break
        rest = {inode: start for inode, start in at.items() if start}
        return LogPage(events=found, before=rest, is_cut=bool(rest) and len(found) < limit)

    def read_on(self, wanted: Mapping[str, str], position: Position) -> LogPage:
        """Return the events past a position that are wanted, oldest first, and the position behind them.

        A line that is not finished yet is left for the next time. Of more than `READ_LIMIT_BYTES`, only the end is read.
        """
        matching = _Matching.of(wanted)
        lines: list[_Line] = []
        after: dict[int, int] = {}
        is_cut = False
        for path in list_log_files(self.folder):
            with suppress(OSError), path.open("rb") as file:
                status = os.fstat(file.fileno())
                start = position.get(status.st_ino, 0)
                # Another file may have got the number of one that was removed.
                start = start if start <= status.st_size else 0
                if status.st_size - start > READ_LIMIT_BYTES:
                    is_cut, start = True, status.st_size - READ_LIMIT_BYTES
                file.seek(start)
                raw, newline, _ = file.read(status.st_size - start).rpartition(b"\n")
                after[status.st_ino] = start + len(raw) + len(newline)
                each_start = start
                for text in raw.split(b"\n") if newline else ():
                    lines.append(_Line.of(status.st_ino, each_start, text[:LINE_LIMIT_BYTES], len(text)))
                    each_start += len(text) + 1
        events = [event for line in sorted(lines, key=lambda each: each.ts) if (event := matching.parse(line))]
        return LogPage(events=events, before=after, is_cut=is_cut)


def list_log_files(folder: Path) -> list[Path]:
    """Return the files of the log of all processes, in no order."""
    return [path for ending in ENDINGS for path in folder.glob(f"{PREFIX}*{ending}")]


@dataclass
class _Budget:
    """How much may still be read for a page, of all files together."""

    left: int = field(default=READ_LIMIT_BYTES)

    @property
    def is_spent(self) -> bool:
        return self.left <= 0


@dataclass(frozen=True)
class _Line:
    """A line of a file, or the beginning of one that is too long."""

    inode: int
    start: int
    raw: bytes
    size: int
    ts: str
    """Empty for a line that is none of ours."""

    @classmethod
    def of(cls, inode: int, start: int, raw: bytes, size: int) -> "_Line":
        head = _HEAD.match(raw)
        return cls(inode, start, raw, size, head[1].decode() if head else "")


@dataclass(frozen=True, kw_only=True)
class _Matching:
    """Which events are wanted."""

    lowest: int
    since: str
    until: str
    server: str | None
    ids: Mapping[str, str]
    needles: tuple[bytes, ...]
    """What a line must contain, so that most need not be parsed."""

    @classmethod
    def of(cls, wanted: Mapping[str, str]) -> "_Matching":
        given = {name: value for name, value in wanted.items() if value}
        ids = {name: value for name, value in given.items() if name in _IDS}
        texts = [*ids.values(), *([given["server"]] if "server" in given else [])]
        return cls(
            lowest=_LEVELS.get(given.get("level", "").upper(), 0),
            # The log writes `+00:00`, others `Z`: both compare without.
            since=given.get("since", "").removesuffix("Z"),
            until=given.get("until", "").removesuffix("Z"),
            server=given.get("server"),
            ids=ids,
            needles=tuple(
                text.encode() for text in texts if text.isascii() and text.isprintable() and not _QUOTED.search(text)
            ),
        )

    def parse(self, line: _Line) -> JsonObject | None:
        """Return the event of a line if it is wanted; None for another, and for a line that is none of ours."""
        if line.size > len(line.raw):
            return self._describe_long(line)
        if any(needle not in line.raw for needle in self.needles):
            return None
        try:
            event = msgspec.json.decode(line.raw)
        except (msgspec.DecodeError, RecursionError):
            return None
        return event if isinstance(event, dict) and self._wants(event) else None

    def _wants(self, event: JsonObject) -> bool:
        ts = str(event.get("ts", ""))
        return (
            _LEVELS.get(str(event.get("level", "")).upper(), 0) >= self.lowest
            and ts >= self.since
            and (not self.until or ts < self.until)
            and (self.server is None or self.server in (event.get("server"), event.get("plugin")))
            and all(event.get(name) == value for name, value in self.ids.items())
        )

    def _describe_long(self, line: _Line) -> JsonObject | None:
        """Stand in for a line that is too long to be read: whose it is, only its end may say."""
        head = _HEAD.match(line.raw)
        if head is None or self.ids or self.server is not None:
            return None
        event: JsonObject = {
            "ts": line.ts,
            "level": (head[2] or b"warning").decode(),
            "event": "line too long to be shown",
            "bytes": line.size,
        }
        return event if self._wants(event) else None


def _read_back(file: BinaryIO, inode: int, end: int, budget: _Budget) -> Iterator[_Line]:
    """Yield the lines of a file up to a position, the last first. What follows the last line break is not finished yet."""
    line = _Unread(inode, is_finished=False)
    at = end
    while at > 0:
        start = max(0, at - BLOCK_BYTES)
        file.seek(start)
        block = file.read(at - start)
        budget.left -= at - start
        at, stop = start, len(block)
        while (newline := block.rfind(b"\n", 0, stop)) >= 0:
            line.put_before(block[newline + 1 : stop])
            if line.is_finished:
                yield line.make(start + newline + 1)
            line, stop = _Unread(inode, ts=line.ts), newline
        line.put_before(block[:stop])
    if line.is_finished and line.size:
        yield line.make(0)


class _Unread:
    """A line that is read from its end to its beginning; of a long one only the beginning is kept."""

    def __init__(self, inode: int, *, ts: str = "", is_finished: bool = True) -> None:
        """`ts` is that of the line after it, for a line without one."""
        self.size = 0
        self.ts = ts
        self.is_finished = is_finished
        self._inode = inode
        self._parts: list[bytes] = []
        """The last part first."""

    def put_before(self, part: bytes) -> None:
        self.size += len(part)
        if self.size > LINE_LIMIT_BYTES:
            # With the part behind it: the time may be in both.
            del self._parts[:-1]
        self._parts.append(part)

    def make(self, start: int) -> _Line:
        """Return the line, which begins here."""
        raw = b"".join(reversed(self._parts))
        found = _Line.of(self._inode, start, raw if self.size <= LINE_LIMIT_BYTES else raw[:BLOCK_BYTES], self.size)
        self.ts = found.ts or self.ts
        return found if found.ts else replace(found, ts=self.ts)


def _find_end(file: BinaryIO, end: int, until: str) -> int:
    """Return a position behind all lines before a time, at the beginning of a line; found by halves."""
    low, high = 0, end
    while high - low > BLOCK_BYTES:
        middle = (low + high) // 2
        start = _find_line(file, middle, high)
        if start is None or _read_time(file, start) >= until:
            high = middle
        else:
            low = start
    start = _find_line(file, high, end)
    return end if start is None else start


def _find_line(file: BinaryIO, at: int, end: int) -> int | None:
    """Return where the next line begins, None if there is none before `end`."""
    file.seek(at)
    while at < end:
        block = file.read(min(BLOCK_BYTES, end - at))
        if not block:
            return None
        if (newline := block.find(b"\n")) >= 0:
            return at + newline + 1 if at + newline + 1 < end else None
        at += len(block)
    return None


def _read_time(file: BinaryIO, start: int) -> str:
    file.seek(start)
    return _Line.of(0, start, file.read(128), 0).ts
