"""Keeps results in chunks, and reads parts of them: never a second copy of a whole result in memory."""

import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio

from toolpost import CallerId, NotFound, ToolpostError
from toolpost.base import event
from toolpost.parts.results import records
from toolpost.parts.results.records import CHUNK_BYTES, KeptResult, ResultId
from toolpost.store import Store

_log = logging.getLogger("toolpost.results")

SCHEME: Final = "toolpost-result"
SWEEP_S: Final = 60.0
_CHUNKS_AT_ONCE: Final = 4
"""Chunks in one transaction: others wait for it."""


def new_result_id() -> ResultId:
    """Return an id that cannot be guessed."""
    return ResultId(secrets.token_urlsafe(18))


def uri_of(result: ResultId, block: int | None = None) -> str:
    """Return the URI of a kept result, or of a block of its content."""
    return f"{SCHEME}://{result}" + ("" if block is None else f"/content/{block}")


class KeptResults:
    """The results that are kept in one store."""

    def __init__(self, store: Store, *, keep_s: float, limit_bytes: int) -> None:
        """`limit_bytes` is how much is kept for one caller."""
        self._scripts = store.scripts
        self._keep_s = keep_s
        self._limit_bytes = limit_bytes
        self.count = 0
        """How many there were when expired ones were last deleted, and below their bytes."""
        self.total_bytes = 0

    async def keep(self, new: KeptResult, *pieces: bytes) -> float | None:
        """Keep a result, given in one or more pieces; return the time of day at which it expires, in seconds since 1970.

        None if it cannot be kept: it is larger than what may be kept for a caller, or has made room for a newer one already.
        """
        numbers = range(-(-new.total_bytes // CHUNK_BYTES))
        chunk = partial(_slice, pieces)
        keep_s, limit_bytes = self._keep_s, self._limit_bytes
        # Not durable: after a power cut the newest results may be gone, and a read says so. Answers do not wait for the disk.
        if len(numbers) <= _CHUNKS_AT_ONCE:
            make = partial(records.keep_at_once, new, numbers, chunk, keep_s=keep_s, limit_bytes=limit_bytes)
            expires_at = await self._scripts.run(make, durable=False)
            return None if expires_at is None else self._scripts.wall(expires_at)
        begin = partial(records.begin, new, keep_s=keep_s, limit_bytes=limit_bytes)
        if (expires_at := await self._scripts.run(begin, durable=False)) is None:
            return None
        for first in range(0, len(numbers), _CHUNKS_AT_ONCE):
            add = partial(records.add_chunks, new.id, numbers[first : first + _CHUNKS_AT_ONCE], chunk)
            if not await self._scripts.run(add, durable=False):
                return None
        if not await self._scripts.run(partial(records.complete, new.id), durable=False):
            return None
        return self._scripts.wall(expires_at)

    async def find(self, result: ResultId, caller: CallerId) -> KeptResult:
        """Return a result of this caller. Raises `NotFound`, whatever the reason: another's is not there at all."""
        if (found := await self._scripts.read(partial(records.find, result, caller))) is None:
            raise _not_found(result)
        return found

    async def read(self, kept: KeptResult, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`. Raises `NotFound` if it has expired since it was found."""
        start, end = max(0, start), min(end, kept.total_bytes)
        if start >= end:
            return b""
        first, last = start // CHUNK_BYTES, (end - 1) // CHUNK_BYTES
        parts: list[bytes] = []
        for number in range(first, last + 1, _CHUNKS_AT_ONCE):
            until = min(last, number + _CHUNKS_AT_ONCE - 1)
            chunks = await self._scripts.read(partial(records.read_chunks, kept.id, kept.caller, number, until))
            if chunks is None or len(chunks) != until - number + 1:
                raise _not_found(kept.id)
            parts += chunks
        # Cut chunk by chunk: joining them first would take twice the memory.
        parts[-1] = parts[-1][: end - last * CHUNK_BYTES]
        parts[0] = parts[0][start - first * CHUNK_BYTES :]
        return b"".join(parts)

    @asynccontextmanager
    async def open_sweeping(self) -> AsyncIterator[None]:
        """Delete what has expired, again and again."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sweep_often)
            yield
            tasks.cancel_scope.cancel()

    async def _sweep_often(self) -> None:
        while True:
            try:
                await self.sweep()
            except ToolpostError as error:
                event(_log, logging.WARNING, "expired results not deleted", reason=error.message)
            await anyio.sleep(SWEEP_S)

    async def sweep(self) -> None:
        """Delete what has expired."""
        while await self._scripts.run(records.delete_expired, durable=False):
            continue
        self.count, self.total_bytes = await self._scripts.read(records.measure)


def _slice(pieces: Sequence[bytes], number: int) -> bytes:
    """Return one chunk of all pieces together."""
    start, end = number * CHUNK_BYTES, (number + 1) * CHUNK_BYTES
    chunk = b""
    for piece in pieces:
        chunk += piece[max(0, start) : max(0, end)]
        start, end = start - len(piece), end - len(piece)
    return chunk


def _not_found(result: ResultId) -> NotFound:
    return NotFound(
        f"There is no result `{result[:100]}`.",
        hint="results are kept for a limited time, for the caller who got them; call the tool again",
        id=result[:100],
    )
