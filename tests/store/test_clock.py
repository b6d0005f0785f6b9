"""The store's clock: the same for all who share a store, and no jump of the wall clock moves it."""

import time
from dataclasses import dataclass, field

import pytest

from toolpost.store import Store, open_store
from toolpost.store.clock import CHECK_S, ClockReading, Correction, StoreClock
from toolpost.store.postgres import scripts as postgres_scripts
from toolpost.store.scripts import NOW, Script

NEW = Correction("", 0.0)
HOUR_S = 3_600.0


@dataclass
class Machine:
    """A wall clock, a steady one, and a row of a store."""

    steady_s: float = 50.0
    wall: float = 1_000_000.0
    kept: Correction = NEW
    epoch: str = "boot 1"
    clocks: list[StoreClock] = field(default_factory=list)

    def pass_by(self, seconds: float) -> None:
        self.steady_s += seconds
        self.wall += seconds

    def start(self) -> StoreClock:
        clock = StoreClock(lambda: self.steady_s)
        self.look(clock)
        return clock

    def look(self, clock: StoreClock, *, is_kept: bool = True, took_s: float = 0.0) -> None:
        began_s, wall = self.steady_s, self.wall
        self.pass_by(took_s)
        look = ClockReading(began_s=began_s, ended_s=self.steady_s, wall=wall, epoch=self.epoch, stored=self.kept)
        if (correction := clock.adjust(look)) is not None and is_kept:
            self.kept = correction


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, 400 * 86_400.0, -400 * 86_400.0])
def test_a_jump_moves_neither_those_who_saw_it_nor_those_who_come_later(jump_s: float) -> None:
    machine = Machine()
    first, second = machine.start(), machine.start()
    started = first.now()
    machine.pass_by(7)
    machine.wall += jump_s
    machine.look(first)
    machine.look(second)
    third = machine.start()

    assert [clock.now() - started for clock in (first, second, third)] == pytest.approx([7, 7, 7], abs=1e-3)
    assert machine.kept.seconds == pytest.approx(-jump_s)
    assert third.wall(third.now()) == pytest.approx(machine.wall, abs=1e-3)


def test_a_jump_and_its_correction_leave_nothing_behind() -> None:
    machine = Machine()
    clock = machine.start()
    for jump_s in (HOUR_S, -HOUR_S):
        machine.wall += jump_s
        machine.pass_by(10)
        machine.look(clock)

    assert clock.now() == pytest.approx(machine.wall)
    assert machine.kept.seconds == pytest.approx(0)


def test_what_was_rolled_back_is_corrected_at_the_next_look() -> None:
    machine = Machine()
    clock = machine.start()
    started = clock.now()
    machine.wall += HOUR_S
    machine.look(clock, is_kept=False)
    machine.pass_by(CHECK_S + 1)
    assert clock.is_due
    machine.look(clock)

    assert machine.kept.seconds == pytest.approx(-HOUR_S)
    assert clock.now() - started == pytest.approx(CHECK_S + 1)


def test_a_clock_that_is_a_little_off_is_followed_and_never_goes_back() -> None:
    machine = Machine()
    clock = machine.start()
    said = []
    for _ in range(10):
        machine.pass_by(5)
        machine.wall -= 0.4
        machine.look(clock)
        said.append(clock.now())

    assert machine.kept == NEW
    assert said == sorted(said)
    assert said[-1] - machine.wall < 0.5


def test_a_process_that_was_held_up_in_the_middle_of_a_look_has_seen_no_jump() -> None:
    machine = Machine()
    clock = machine.start()
    machine.pass_by(10)
    machine.look(clock, took_s=600)

    assert machine.kept == NEW


def test_what_another_has_corrected_is_taken_as_it_is() -> None:
    machine = Machine()
    clock = machine.start()
    machine.pass_by(10)
    machine.kept = Correction("boot 1", -500.0)
    machine.look(clock)
    machine.pass_by(10)
    machine.look(clock)

    assert machine.kept.seconds == -500
    assert clock.wall(clock.now()) == pytest.approx(machine.wall, abs=501)


def test_after_a_boot_the_wall_clock_counts_again() -> None:
    machine = Machine(kept=Correction("boot 0", -HOUR_S))
    clock = machine.start()

    assert clock.now() == pytest.approx(machine.wall)


def _now() -> Script[float]:
    ((now,),) = yield NOW
    return float(now)


async def _said(store: Store) -> float:
    return await store.scripts.run(_now)


@pytest.mark.anyio
@pytest.mark.parametrize("jump_s", [86_400.0, -86_400.0])
async def test_two_servers_of_a_store_go_on_when_its_clock_jumps(
    url: str, jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, look = time.time, postgres_scripts._READ_CLOCK
    monkeypatch.setattr("toolpost.store.clock.CHECK_S", 0.0)
    async with open_store(url) as one, open_store(url) as other:
        started, began_s = await _said(one), time.monotonic()
        # The machine's for SQLite, the database's for PostgreSQL.
        monkeypatch.setattr(time, "time", lambda: real() + jump_s)
        monkeypatch.setattr(
            postgres_scripts, "_READ_CLOCK", look.replace("::double", f"::double precision + ({jump_s})::double", 1)
        )
        async with open_store(url) as early:
            before = await _said(early)
        said = [await _said(store) for store in (one, other, one)]
        async with open_store(url) as late:
            said.append(await _said(late))
            shown = late.scripts.wall(said[-1])
        passed_s = time.monotonic() - began_s

    assert before - started == pytest.approx(jump_s, abs=60), "nobody had seen it yet"
    assert all(0 <= at - started <= passed_s + 1.5 for at in said)
    assert shown == pytest.approx(real() + jump_s, abs=60)
