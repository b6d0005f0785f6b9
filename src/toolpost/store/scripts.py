"""Scripts: transactions written once for every kind of store, as generators that ask for rows.

A script yields statements and is sent the rows of each; what it returns is the result. Its SQL keeps to what SQLite and
PostgreSQL share: parameters are `?1`, `?2`…, a parameter whose type nothing tells is cast. `/*lock*/` at the end of a SELECT
keeps the rows for this transaction, `/*skip locked*/` passes over those that another one has: comments to SQLite, where only
one transaction writes at a time.

A script may be run again from its beginning, so it changes nothing but the database, and does nothing new the second time.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

Row = Sequence[Any]
Result = TypeVar("Result")


class Statement(msgspec.Struct, frozen=True, gc=False):
    """A statement, and its values."""

    sql: str
    values: tuple[Any, ...] = ()
    counts: bool = False
    """Whether as many rows are to be sent as were changed, of whatever."""
    may_wait: bool = False
    """Whether it may be run at the end of its transaction: no script that writes reads what it adds."""


class Together(msgspec.Struct, frozen=True, gc=False):
    """Statements that touch different rows, in whatever order; the rows of the first are asked for."""

    statements: tuple[Statement, ...]


def change(sql: str, values: tuple[Any, ...]) -> Statement:
    """Change rows, and be told how many. SQLite counts them; to have `RETURNING` say it would cost it more than the change."""
    return Statement(sql, values, counts=True)


NOW: Final = Statement("now")
"""Asks for the store's own time, in seconds since 1970: one clock for all who share it, without jumps (`store/clock.py`)."""

ALONE: Final = "SELECT ?1 /*alone*/"


def alone(name: str) -> Statement:
    """Ask to be the only one with this name, on whichever server, until the transaction ends. SQLite has one writer anyway."""
    return Statement(ALONE, (name,))


Script = Generator[Statement | Together, list[Row], Result]


class Scripts(Protocol):
    """Runs scripts, each in a transaction."""

    def run(
        self, make: Callable[[], Script[Result]], *, full: bool = True, is_short: bool = False
    ) -> Awaitable[Result]:
        """Run a script; done when it is committed, and outlives a power cut; without `full` perhaps not that.

        One that is short touches a few small rows: it may be run together with others, and where all else runs.
        """
        ...

    def read(self, make: Callable[[], Script[Result]]) -> Awaitable[Result]:
        """Run a script that only looks; it waits for nobody who writes."""
        ...

    def wall(self, at: float) -> float:
        """Return what the wall clock shows at a moment of the store's time, for people and other programs."""
        ...
