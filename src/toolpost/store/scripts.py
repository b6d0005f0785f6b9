"""Scripts: transactions written once for SQLite and PostgreSQL, as generators that yield statements and are sent rows.

A script knows no connection, so that the same generator runs on both databases. Its return value is the result:

    def rename(thread: str, title: str) -> Script[bool]:
        ((now,),) = yield NOW
        changed = yield change("UPDATE threads SET title = ?1, changed_at = ?2 WHERE id = ?3", (title, now, thread))
        return bool(changed)

    await store.scripts.run(lambda: rename("t-1", "Plans"))

The methods of a class that stands for one table (`TableAccess`) are scripts themselves: `reads` and `writes` make coroutine
functions of them.

Its SQL keeps to what both databases share:

- parameters are `?1`, `?2`…; one whose type PostgreSQL cannot infer is cast (`CAST(?1 AS TEXT) IS NULL`);
- `/*lock*/` at the end of a SELECT locks its rows until the transaction ends, `/*skip locked*/` leaves out the rows that another
  transaction has locked; with an alias (`/*lock w*/`) only the rows of that table. For SQLite these are comments: there only one
  transaction writes at a time;
- `tool GLOB ?1` matches a pattern of `*` and `?`, with regard to case (`glob()` escapes the rest).

A script may be run again from its beginning: after a conflict, after another script of its group failed, or after the connection
was lost while it was committed. So it changes nothing but the database, and does nothing new the second time (an upsert by key,
or a search for its own id first). A script without this guarantee runs with `repeatable=False`.
"""

import re
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from functools import lru_cache, wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import msgspec

from toolpost.contracts.errors import GatewayError

Row = tuple[Any, ...]
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


class Statement(msgspec.Struct, frozen=True, gc=False):
    """A statement, and its values."""

    sql: str
    values: tuple[Any, ...] = ()
    counts: bool = False
    """Whether to send one empty row for each row that was changed, instead of what the statement returns."""
    may_be_deferred: bool = False
    """Whether it may be run after all other statements of the transaction, together with its like: only for rows that no script
    reads in order to write.
    """


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Statements on different rows, run in any order and in one round trip; the rows of the first are sent."""

    statements: tuple[Statement, ...]


class Many(msgspec.Struct, frozen=True, gc=False):
    """A statement run once for each of these values; no rows are sent."""

    sql: str
    values: Sequence[tuple[Any, ...]]


def change(sql: str, values: tuple[Any, ...]) -> Statement:
    """Return a statement that changes rows, and is answered with one empty row for each that was changed.

    Faster than `RETURNING` in SQLite, which counts changed rows anyway.
    """
    return Statement(sql, values, counts=True)


NOW: Final = Statement("now")
"""Reads the store's time, in seconds since 1970: one clock for all processes, without jumps (`store/clock.py`)."""

LOCK_NAME: Final = "SELECT ?1 /* lock */"
"""A marker, which PostgreSQL's runner replaces by a lock; for SQLite it does nothing."""


def lock_name(name: str) -> Statement:
    """Lock a name until the transaction ends, among all processes of the store. SQLite has one writer anyway."""
    return Statement(LOCK_NAME, (name,))


def glob(pattern: str) -> str:
    """Return what `GLOB` takes for a pattern in which only `*` and `?` have a meaning."""
    return pattern.replace("[", "[[]")


def marks(count: int, *, after: int = 0) -> str:
    """Return so many parameters, `?1, ?2, …`, past the first `after`."""
    return ", ".join(f"?{number}" for number in range(after + 1, after + count + 1))


Step = Statement | Batch | Many
Script = Generator[Step, list[Row], Result]


_READING: Final = re.compile(r"\s*(SELECT|WITH|VALUES)\b", re.IGNORECASE)


def only_reading(script: Script[Result]) -> Script[Result]:
    """Run a script that changes nothing. Raises `GatewayError` at a statement that would: no transaction would undo it."""
    try:
        step = next(script)
        while True:
            if isinstance(step, Many) or any(
                each.counts or not _reads(each.sql)
                for each in (step.statements if isinstance(step, Batch) else (step,))
            ):
                raise GatewayError("a script that only reads has a statement that writes: run it with `scripts.run`")
            step = script.send((yield step))
    except StopIteration as end:
        result: Result = end.value
        return result


@lru_cache(maxsize=512)
def _reads(sql: str) -> bool:
    return sql == NOW.sql or _READING.match(sql) is not None


class Scripts(Protocol):
    """Runs scripts, each in a transaction."""

    def run(
        self,
        make: Callable[[], Script[Result]],
        *,
        durable: bool = True,
        is_short: bool = False,
        repeatable: bool = True,
    ) -> Awaitable[Result]:
        """Run a script that `make` returns; done when it is committed, and with `durable` when it survives a power cut.

        One that `is_short` touches a few small rows: it may share a transaction with others, and SQLite runs it on the event
        loop. One that is not `repeatable` raises `StoreUnavailable` if the connection was lost during its commit: whether it
        was kept is then unknown.
        """
        ...

    def read(self, make: Callable[[], Script[Result]]) -> Awaitable[Result]:
        """Run a script that changes nothing; it does not wait for writers."""
        ...

    def wall(self, at: float) -> float:
        """Convert a time of the store to the wall clock, for people and other programs."""
        ...


class TableAccess:
    """One table, or a few that belong together: a class whose methods are scripts, made coroutine functions."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts


_Method = Callable[Concatenate[Any, Parameters], Script[Result]]
_Runs = Callable[Concatenate[Any, Parameters], Coroutine[Any, Any, Result]]


def reads(script: _Method[Parameters, Result]) -> _Runs[Parameters, Result]:
    """Make a method of a `TableAccess`, a script that changes nothing, run by `Scripts.read`."""

    @wraps(script)
    async def run(access: TableAccess, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return await access._scripts.read(lambda: script(access, *args, **kwargs))  # noqa: SLF001 (its own method)

    return run


def writes(
    *, durable: bool = True, repeatable: bool = True, is_short: bool = False
) -> Callable[[_Method[Parameters, Result]], _Runs[Parameters, Result]]:
    """Make a method of a `TableAccess` run by `Scripts.run`, which explains the options."""

    def decorate(script: _Method[Parameters, Result]) -> _Runs[Parameters, Result]:
        @wraps(script)
        async def run(access: TableAccess, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            make = lambda: script(access, *args, **kwargs)  # noqa: E731
            run_script = access._scripts.run  # noqa: SLF001 (its own method)
            return await run_script(make, durable=durable, repeatable=repeatable, is_short=is_short)

        return run

    return decorate
