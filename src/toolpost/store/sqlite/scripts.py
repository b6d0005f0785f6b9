"""Scripts run in SQLite: in the writer's next group, short ones by the loop itself."""

import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from toolpost.base.clocks import boot_id, steady_s
from toolpost.store.clock import Correction, Look, StoreClock
from toolpost.store.scripts import NOW, Many, Result, Row, Script, Statement, Together
from toolpost.store.sqlite.transactions import Work


class _Submit(Protocol):
    def __call__(self, work: Work, item: Any, *, full: bool) -> Awaitable[Any]: ...


class _Read(Protocol):
    def __call__(self, job: Callable[[sqlite3.Connection], Any]) -> Awaitable[Any]: ...


class Player:
    """Plays scripts, on whichever connection, by one clock."""

    def __init__(self, clock: StoreClock) -> None:
        self.clock = clock
        # Two kinds of work, told apart by who does them.
        self.usual: Work = self._play_all
        self.short: Work = self._play_all_short

    def play(self, connection: sqlite3.Connection, script: Script[Result]) -> Result:
        """Run a script that only looks to its end."""
        (result,) = self._play_each(connection, [lambda: script])
        return result  # type: ignore[no-any-return]

    def _play_all(self, connection: sqlite3.Connection, makes: Sequence[Callable[[], Script[Any]]]) -> list[Any]:
        if self.clock.is_due:
            look_at_clock(connection, self.clock)
        return self._play_each(connection, makes)

    def _play_each(self, connection: sqlite3.Connection, makes: Sequence[Callable[[], Script[Any]]]) -> list[Any]:
        cursor = connection.cursor()
        waiting: list[Statement] = []
        # What is done in one transaction is done at one time.
        now: list[Row] = [(self.clock.now(),)]
        results = [_played(cursor, make(), waiting, now) for make in makes]
        if waiting:
            _run_the_rest(cursor, waiting)
        return results

    def _play_all_short(self, connection: sqlite3.Connection, makes: Sequence[Callable[[], Script[Any]]]) -> list[Any]:
        return self._play_all(connection, makes)


class SqliteScripts:
    """One writer, so that no script ever waits for another's lock."""

    def __init__(self, player: Player, *, submit: _Submit, read: _Read) -> None:
        self._player = player
        self._submit = submit
        self._read = read

    def run(
        self,
        make: Callable[[], Script[Result]],
        *,
        full: bool = True,
        is_short: bool = False,
        repeatable: bool = True,  # noqa: ARG002 - a commit in this process is never lost halfway
    ) -> Awaitable[Result]:
        """Run a script; done when it is committed, with `full` when it survives a power cut."""
        return self._submit(self._player.short if is_short else self._player.usual, make, full=full)

    def read(self, make: Callable[[], Script[Result]]) -> Awaitable[Result]:
        """Run a script that only looks, beside the writer."""
        return self._read(lambda connection: self._player.play(connection, make()))

    def wall(self, at: float) -> float:
        """Return what the wall clock shows at a moment of the store's time."""
        return self._player.clock.wall(at)


def look_at_clock(connection: sqlite3.Connection, clock: StoreClock) -> None:
    """Compare the store's time with this machine's, within a transaction, and note it if that has jumped."""
    kept = Correction(*connection.execute("SELECT epoch, seconds FROM store_clock").fetchone())
    look = Look(began_s=steady_s(), wall=time.time(), ended_s=steady_s(), epoch=boot_id(), kept=kept)
    if (correction := clock.take(look)) is not None:
        connection.execute("UPDATE store_clock SET epoch = ?, seconds = ?", correction)


def _played(cursor: sqlite3.Cursor, script: Script[Result], waiting: list[Statement], now: list[Row]) -> Result:
    execute = cursor.execute
    rows: list[Row]
    try:
        step = next(script)
        while True:
            if step is NOW:
                step = script.send(now)
                continue
            if isinstance(step, Many):
                cursor.executemany(step.sql, step.values)
                step = script.send([])
                continue
            others: Sequence[Statement] = ()
            if isinstance(step, Together):
                step, *others = step.statements
            if step.may_wait:
                waiting.append(step)
                rows = []
            else:
                execute(step.sql, step.values)
                rows = [()] * cursor.rowcount if step.counts else cursor.fetchall()
            for other in others:
                if other.may_wait:
                    waiting.append(other)
                else:
                    execute(other.sql, other.values)
            step = script.send(rows)
    except StopIteration as end:
        result: Result = end.value
        return result


def _run_the_rest(cursor: sqlite3.Cursor, waiting: Sequence[Statement]) -> None:
    """Run those that are alike together: most of what a statement costs is the way to it."""
    alike: dict[str, list[Row]] = {}
    for statement in waiting:
        alike.setdefault(statement.sql, []).append(statement.values)
    for sql, values in alike.items():
        cursor.executemany(sql, values)
