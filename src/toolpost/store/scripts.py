"""Scripts: transactions written once for every kind of store, as generators that ask for rows.

A script yields statements and is sent the rows of each; what it returns is the result. Its SQL keeps to what SQLite and
PostgreSQL share: parameters are `?1`, `?2`…, a parameter whose type nothing tells is cast. `/*lock*/` at the end of a SELECT
keeps the rows for this transaction, `/*skip locked*/` passes over those that another one has: comments to SQLite, where only
one transaction writes at a time.

A script may be run again from its beginning, so it changes nothing but the database, and does nothing new the second time.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

Row = Sequence[Any]
Result = TypeVar("Result")


class Statement(NamedTuple):
    """A statement, and its values."""

    sql: str
    values: tuple[Any, ...] = ()


NOW: Final = Statement("now")
"""Asks for the store's own time, in seconds since 1970: one clock, whichever machine asks."""

Script = Generator[Statement, list[Row], Result]


class Scripts(Protocol):
    """Runs scripts, each in a transaction."""

    async def run(self, make: Callable[[], Script[Result]], *, full: bool = True) -> Result:
        """Run a script; done when it is committed, and outlives a power cut; without `full` perhaps not that."""
        ...
