"""Validates in processes of their own, each of which is killed when the call that needs it ends.

The validator is native code and cannot be interrupted: on the event loop it would block every call, and in a thread it would hold
the interpreter lock. Few calls come here: those whose schema is not provably cheap for a value of their size
(`Schema.inline_limit_bytes`), and changed definitions that are not provably cheap to compare. Processes are started on demand;
one is kept for the next call. `process` is the other end.
"""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from toolpost.contracts.compatibility import Definition, Judgement, make_cut_short_judgement
from toolpost.contracts.errors import QueueOverloaded, ToolFailed
from toolpost.contracts.issues import Issue, make_generic_issue, parse_issue
from toolpost.contracts.schema import Schema
from toolpost.processes.tree import Process, open_process
from toolpost.upstreams.validation.process import HEAD, JUDGE, LENGTH, VALIDATE

T = TypeVar("T")

PROCESSES: Final = 4
WAITING: Final = 100
JUDGE_S: Final = 20.0
"""A judgement has a budget of one second; this limit is for a single step that exceeds it."""

EXPLAIN_S: Final = 2.0
"""How long the issues of an invalid value are collected; after that, one generic issue is returned."""

KEPT: Final = 1
CHUNK_BYTES: Final = 65_536


class Validators:
    """A pool of validating processes. A provider has one of them at a time, so that none can occupy all."""

    def __init__(self) -> None:
        self._tasks: TaskGroup | None = None
        self._slots = anyio.CapacityLimiter(PROCESSES)
        self._turns: dict[str, _ProviderLock] = {}
        self._free: list[_Validator] = []
        self._waiting = 0

    @asynccontextmanager
    async def open_running(self) -> AsyncIterator[None]:
        """Allow processes to be started; leaving ends them."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    async def judge(self, old: Definition, new: Definition, *, provider: str) -> Judgement:
        """Judge a change; returns `make_cut_short_judgement()` if that takes too long, or ends the process."""
        pair = msgspec.json.encode(old), msgspec.json.encode(new)
        with anyio.move_on_after(JUDGE_S):
            try:
                return await self._run_in_turn(provider, lambda validator: validator.judge(*pair))
            except ToolFailed:
                pass  # the process ended: the pair is too much for it, which is what `make_cut_short_judgement` says
        return make_cut_short_judgement()

    async def find_issues(self, schema: Schema, encoded: bytes, *, provider: str) -> list[Issue]:
        """List the issues of a value, given as JSON text; cancelling ends the process that validates it.

        Raises `QueueOverloaded` if too many calls wait, and `ToolFailed` if the process ends, mostly for lack of memory.
        """
        if self._waiting >= WAITING:
            raise QueueOverloaded(
                "Too many values are waiting to be validated.", hint="try again in a moment", retryAfterMs=1_000
            )
        raw = msgspec.json.encode(schema.raw)
        self._waiting += 1
        try:
            return await self._run_in_turn(provider, lambda validator: validator.find_issues(raw, encoded))
        finally:
            self._waiting -= 1

    async def _run_in_turn(self, provider: str, ask: Callable[["_Validator"], Awaitable[T]]) -> T:
        turn = self._turns.setdefault(provider, _ProviderLock())
        turn.users += 1
        try:
            async with turn.lock, self._slots:
                return await self._ask(ask)
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[provider]

    async def _ask(self, ask: Callable[["_Validator"], Awaitable[T]]) -> T:
        # One that was killed while it was idle is not used: its next call would fail for no reason of its own.
        while self._free and self._free[-1].is_over:
            self._free.pop().end()
        if self._free:
            validator = self._free.pop()
        else:
            assert self._tasks is not None, "the validators are not running"
            validator = _Validator()
            await self._tasks.start(validator.run)
        try:
            answer = await ask(validator)
        except BaseException:
            validator.end()
            raise
        if validator.is_over or len(self._free) >= KEPT:
            validator.end()
        else:
            self._free.append(validator)
        return answer


class _ProviderLock:
    """Serializes the calls of one provider; removed when it has no users."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.users = 0


class _Validator:
    """One process, which handles one request at a time."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._must_end = anyio.Event()
        self._read = bytearray()

    @property
    def is_over(self) -> bool:
        """Whether the process has ended, or is about to."""
        return self._must_end.is_set() or (self._process is not None and self._process.returncode is not None)

    def end(self) -> None:
        """Have the process ended, whatever it is doing; does not wait for that."""
        self._must_end.set()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Run the process until `end`."""
        async with open_process(
            # -P: the current folder may contain modules that shadow others, and is not put on the path.
            [sys.executable, "-P", "-m", "toolpost.upstreams.validation.process"],
            env={name: os.environ[name] for name in ("PYTHONPATH", "PYTHONHOME") if name in os.environ},
            stdin=True,
            grace_s=0.0,
        ) as process:
            self._process = process
            task_status.started()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._drop_errors, process)
                await self._must_end.wait()
                tasks.cancel_scope.cancel()

    @staticmethod
    async def _drop_errors(process: Process) -> None:
        try:
            while True:
                await process.stderr.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, OSError):
            return

    async def judge(self, old: bytes, new: bytes) -> Judgement:
        await self._send(JUDGE, old, new)
        return msgspec.json.decode(await self._answer(), type=Judgement)

    async def find_issues(self, raw: bytes, encoded: bytes) -> list[Issue]:
        await self._send(VALIDATE, raw, encoded)
        if await self._answer() == b"true":
            return []
        with anyio.move_on_after(EXPLAIN_S):
            try:
                return [parse_issue(issue) for issue in msgspec.json.decode(await self._answer())]
            except ToolFailed:
                pass  # the process ended while it collected the details
        # The value is known to be invalid: the details are not worth more time.
        self.end()
        return [make_generic_issue()]

    async def _send(self, kind: bytes, first: bytes, second: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(HEAD.pack(kind, len(first), len(second)) + first + second)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise _make_lost_error() from error

    async def _answer(self) -> bytes:
        try:
            (length,) = LENGTH.unpack(await self._take(LENGTH.size))
            return await self._take(length)
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise _make_lost_error() from error

    async def _take(self, size: int) -> bytes:
        assert self._process is not None
        while len(self._read) < size:
            self._read += await self._process.stdout.receive(CHUNK_BYTES)
        taken = bytes(self._read[:size])
        del self._read[:size]
        return taken


def _make_lost_error() -> ToolFailed:
    return ToolFailed(
        "The value could not be validated: the process that did it ended.",
        hint="the tool's schema needs too much memory for this value; ask for less at once",
    )
