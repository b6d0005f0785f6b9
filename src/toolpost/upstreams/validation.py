"""Validation that may take long: in a process of its own, which ends when the call that needs it does.

A validator is native code and cannot be interrupted: on the event loop it would hold up everybody, and in a thread it would hold
Python's lock. Few calls come here: those whose schema is not provably cheap for a value of their size (`Schema.quick_bytes`).
Processes are started when they are needed; one is kept for the next.
"""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from toolpost.contracts.errors import QueueOverloaded, ToolFailed
from toolpost.contracts.faults import Fault, fault_from_object, unexplained
from toolpost.contracts.ids import Json
from toolpost.contracts.schema import Schema
from toolpost.upstreams.process_tree import Process, open_process
from toolpost.upstreams.validation_process import HEAD, LENGTH

PROCESSES: Final = 4
WAITING: Final = 100
EXPLAIN_S: Final = 2.0
"""How long a refusal is explained; one that takes longer is a plain refusal."""

KEPT: Final = 1
CHUNK_BYTES: Final = 65_536


class Validators:
    """Processes that validate. A source has one of them at a time, so that none can take them all."""

    def __init__(self) -> None:
        self._tasks: TaskGroup | None = None
        self._slots = anyio.CapacityLimiter(PROCESSES)
        self._turns: dict[str, _Turn] = {}
        self._free: list[_Validator] = []
        self._waiting = 0

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Let processes be started; leaving ends them."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    async def faults_in(self, schema: Schema, encoded: bytes, *, source: str) -> list[Fault]:
        """List what is wrong with a value, given as JSON text; cancelling it ends the process that is at it.

        Raises `QueueOverloaded` if too many wait, and `ToolFailed` if the process did not survive it.
        """
        if self._waiting >= WAITING:
            raise QueueOverloaded(
                "Too many values wait for being validated.", hint="try again in a moment", retry_after_ms=1_000
            )
        self._waiting += 1
        turn = self._turns.setdefault(source, _Turn())
        turn.users += 1
        try:
            async with turn.lock, self._slots:
                return await self._asked(schema, encoded)
        finally:
            self._waiting -= 1
            turn.users -= 1
            if not turn.users:
                del self._turns[source]

    async def _asked(self, schema: Schema, encoded: bytes) -> list[Fault]:
        validator = self._free.pop() if self._free else await self._started()
        try:
            faults = await validator.faults_in(schema, encoded)
        except BaseException:
            validator.end()
            raise
        if validator.is_over or len(self._free) >= KEPT:
            validator.end()
        else:
            self._free.append(validator)
        return faults

    async def _started(self) -> "_Validator":
        assert self._tasks is not None, "nothing is validated any more"
        validator = _Validator()
        await self._tasks.start(validator.run)
        return validator


class _Turn:
    """Whose turn it is among the calls of one source."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.users = 0


class _Validator:
    """One process, asked one thing at a time."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._is_over = anyio.Event()
        self._read = bytearray()

    @property
    def is_over(self) -> bool:
        """Whether it is to be asked no more."""
        return self._is_over.is_set()

    def end(self) -> None:
        """End the process, whatever it is doing; nobody waits for that."""
        self._is_over.set()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Run the process until `end`."""
        async with open_process(
            # Without the folder it starts in on its path: that may hold anything.
            [sys.executable, "-P", "-m", "toolpost.upstreams.validation_process"],
            env={name: os.environ[name] for name in ("PYTHONPATH", "PYTHONHOME") if name in os.environ},
            stdin=True,
            grace_s=0.0,
        ) as process:
            self._process = process
            task_status.started()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._drop_errors, process)
                await self._is_over.wait()
                tasks.cancel_scope.cancel()

    @staticmethod
    async def _drop_errors(process: Process) -> None:
        try:
            while True:
                await process.stderr.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, OSError):
            return

    async def faults_in(self, schema: Schema, encoded: bytes) -> list[Fault]:
        """Ask, and read the answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        raw = msgspec.json.encode(schema.raw)
        try:
            await self._process.stdin.send(HEAD.pack(len(raw), len(encoded)) + raw + encoded)
            is_valid = await self._answer()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ToolFailed(
                "The value could not be validated: the process that did it ended.",
                hint="the tool's schema needs too much memory for this value; ask for less at once",
            ) from error
        if is_valid:
            return []
        with anyio.move_on_after(EXPLAIN_S):
            try:
                return [fault_from_object(fault) for fault in await self._answer()]
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
        # It is known to be wrong: what exactly is not worth more time.
        self.end()
        return [unexplained()]

    async def _answer(self) -> Json:
        (length,) = LENGTH.unpack(await self._take(LENGTH.size))
        return msgspec.json.decode(await self._take(length))

    async def _take(self, size: int) -> bytes:
        assert self._process is not None
        while len(self._read) < size:
            self._read += await self._process.stdout.receive(CHUNK_BYTES)
        taken = bytes(self._read[:size])
        del self._read[:size]
        return taken
