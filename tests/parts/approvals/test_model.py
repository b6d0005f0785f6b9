"""One model of rounds, held against both kinds of store: whatever is done in whatever order, they agree."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.postgres import Postgres
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId, CallId
from toolpost.contracts.errors import ToolpostError
from toolpost.parts.approvals import PART
from toolpost.parts.approvals.rounds import Choice, RoundId, Status
from toolpost.parts.approvals.service import Approvals
from toolpost.parts.approvals.subject import CallSubject
from toolpost.store import Store
from toolpost.store.part_migrations import open_part_store
from toolpost.store.scripts import Script, Statement

Result = TypeVar("Result")
VOTERS = ("ann", "ben", "cleo")
NEEDED = 2
AMOUNTS = st.sampled_from([1, 2])


class Model:
    """A round, by what was said to the store alone."""

    def __init__(self) -> None:
        self.votes: dict[str, set[str]] = {}
        self.fate: str | None = None
        self.call: str | None = None
        self.is_expired = False

    @property
    def status(self) -> str:
        if self.fate is not None:
            return self.fate
        single = [made for made in self.votes.values() if len(made) == 1]
        approvals = sum(made == {"approve"} for made in single)
        against = len(self.votes) - approvals
        decided = "approved" if approvals >= NEEDED else "denied" if len(VOTERS) - against < NEEDED else "open"
        return "expired" if self.is_expired and decided != "denied" else decided

    @property
    def serves(self) -> bool:
        return self.fate is None and not self.is_expired


class RoundMachine(RuleBasedStateMachine):
    """Plays callers, voters, two gateways and the passing of time."""

    loop: ClassVar[asyncio.AbstractEventLoop]
    stores: ClassVar[list[Store]]

    def __init__(self) -> None:
        super().__init__()
        self.gateways = [Approvals(store) for store in self.stores]
        self.rounds: dict[int, Model] = {}
        self.latest: dict[int, int] = {}
        self.keys: dict[int, str] = {}
        self.calls = 0
        self.run(self.stores[0].scripts.run(_emptied))

    def run(self, doing: Awaitable[Result]) -> Result:
        return self.loop.run_until_complete(doing)

    def succeeds(self, doing: Awaitable[Any]) -> bool:
        try:
            self.run(doing)
        except ToolpostError:
            return False
        return True

    def any_round(self, number: int) -> int | None:
        known = sorted(self.rounds)
        return known[number % len(known)] if known else None

    @rule(amount=AMOUNTS, gateway=st.integers(0, 1))
    def ask(self, amount: int, gateway: int) -> None:
        subject = CallSubject(
            tool="bank__pay",
            provider="bank",
            contract="sha256:1",
            caller="eve",
            arguments={"amount": amount},
            definition={},
            rule="money",
            voters=VOTERS,
            needed=NEEDED,
        )
        opened = self.run(self.gateways[gateway].open_call(subject, expires_s=10_000))
        known = self.latest.get(amount)
        serves = known is not None and self.rounds[known].serves
        assert opened.is_new is not serves
        if serves:
            assert opened.round.id == known
        else:
            assert opened.round.id not in self.rounds
            self.rounds[opened.round.id] = Model()
            self.latest[amount] = opened.round.id
            self.keys[opened.round.id] = opened.round.key

    @rule(
        number=st.integers(0, 5),
        voter=st.sampled_from([*VOTERS, "eve"]),
        choice=st.sampled_from(["approve", "deny"]),
        gateway=st.integers(0, 1),
    )
    def vote(self, number: int, voter: str, choice: Choice, gateway: int) -> None:
        if (found := self.any_round(number)) is None:
            return
        by = Caller(id=CallerId(voter), transport="memory")
        model = self.rounds[found]
        is_known = choice in model.votes.get(voter, ())
        expected = voter in VOTERS and (is_known or not model.is_expired)
        assert self.succeeds(self.gateways[gateway].vote(RoundId(found), choice, by=by)) is expected
        if expected:
            model.votes.setdefault(voter, set()).add(choice)

    @rule(number=st.integers(0, 5), gateway=st.integers(0, 1))
    def dispatch(self, number: int, gateway: int) -> None:
        if (found := self.any_round(number)) is None:
            return
        self.calls += 1
        call, model = CallId(f"c{self.calls}"), self.rounds[found]
        used = self.run(self.gateways[gateway].dispatch(RoundId(found), self.keys[found], call))
        assert (used.call_id == call) is (model.status == "approved"), "exactly what is approved runs"
        if model.status == "approved":
            model.fate, model.call = "dispatched", call

    @rule(number=st.integers(0, 5), is_done=st.booleans())
    def finish(self, number: int, is_done: bool) -> None:
        if (found := self.any_round(number)) is None:
            return
        model = self.rounds[found]
        status = Status.DONE if is_done else Status.FAILED
        call = CallId(model.call or "none")
        self.run(self.gateways[0].finish(RoundId(found), call, status=status, outcome=None))
        if model.fate in ("dispatched", "lost"):
            model.fate = status.value

    @rule(number=st.integers(0, 5))
    def expire(self, number: int) -> None:
        if (found := self.any_round(number)) is None:
            return
        self.run(self.stores[0].scripts.run(lambda: _change(found, "expires_at = created_at - 1")))
        self.rounds[found].is_expired = True

    @rule(number=st.integers(0, 5))
    def die(self, number: int) -> None:
        """A gateway dies while it runs the call of a round; the other one looks after it."""
        if (found := self.any_round(number)) is None:
            return
        model = self.rounds[found]
        self.run(self.stores[0].scripts.run(lambda: _change(found, "owned_until = created_at - 1")))
        lost = self.run(self.gateways[1].sweep())
        assert [one.id for one in lost] == ([found] if model.fate == "dispatched" else [])
        if model.fate == "dispatched":
            model.fate = "lost"

    @invariant()
    def agrees(self) -> None:
        for found, model in self.rounds.items():
            view = self.run(self.gateways[0].read(RoundId(found)))
            assert view.status.value == model.status
            assert {(vote.voter, vote.choice) for vote in view.votes} == {
                (voter, choice) for voter, made in model.votes.items() for choice in made
            }, "no vote is lost"

    def teardown(self) -> None:
        assert self.run(self.stores[0].audit.verify()).is_intact


def _emptied() -> Script[None]:
    for table in ("approval_rounds", "approval_votes"):
        yield Statement(f"DELETE FROM {table}")


def _change(found: int, sql: str) -> Script[None]:
    yield Statement(f"UPDATE approval_rounds SET {sql} WHERE id = ?1", (found,))


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.wire)])
def test_rounds_agree_with_their_model(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if kind == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_url()
    else:
        url = f"sqlite:{tmp_path / 'store.db'}"
    loop = asyncio.new_event_loop()
    try:
        stores = [open_part_store(url, PART.name, PART.migrations) for _ in range(2)]
        RoundMachine.loop = loop
        RoundMachine.stores = [loop.run_until_complete(store.__aenter__()) for store in stores]
        try:
            run_state_machine_as_test(
                RoundMachine,
                settings=settings(
                    max_examples=40,
                    stateful_step_count=30,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            for store in stores:
                loop.run_until_complete(store.__aexit__(None, None, None))
    finally:
        loop.close()
