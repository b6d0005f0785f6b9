"""One model of sessions, held against both kinds of store: whatever is done in whatever order, nothing is lost or rewritten."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import ClassVar, TypeVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.postgres import Postgres
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.contracts.errors import InvalidRequest, ToolpostError
from toolpost.parts.trail import PART
from toolpost.parts.trail.records import Draft
from toolpost.parts.trail.service import Thought, Trail, draft_result
from toolpost.parts.trail.verify_trail import check_proof
from toolpost.store.part_migrations import open_part_store

Result = TypeVar("Result")
NAMES = st.sampled_from(["a", "b"])
OWNERS = st.sampled_from(["ann", "ben"])
GATEWAYS = st.integers(0, 1)


class SessionModel:
    """A session, by what was recorded in it alone."""

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.records: list[str] = []
        self.is_sealed = False
        self.roots: dict[int, str] = {}
        """Roots that somebody was given, by size."""


class SessionMachine(RuleBasedStateMachine):
    """Plays two agents at two gateways, which plan, call, seal and prove."""

    loop: ClassVar[asyncio.AbstractEventLoop]
    trails: ClassVar[list[Trail]]

    def __init__(self) -> None:
        super().__init__()
        self.world = uuid4().hex[:8]
        self.sessions: dict[tuple[str, str], list[SessionModel]] = {}
        self.calls: list[tuple[str, str, str, str, int]] = []
        """Calls in flight: owner, name, id, hash, session."""
        self.count = 0

    def run(self, doing: Awaitable[Result]) -> Result:
        return self.loop.run_until_complete(doing)

    def caller(self, owner: str) -> Caller:
        return Caller(id=CallerId(f"{owner}-{self.world}"), transport="memory")

    def open_model(self, owner: str, name: str) -> SessionModel:
        line = self.sessions.setdefault((owner, name), [])
        if not line or line[-1].is_sealed:
            line.append(SessionModel(name if not line else f"{name}.{len(line) + 1}"))
        return line[-1]

    @rule(owner=OWNERS, name=NAMES, gateway=GATEWAYS)
    def start(self, owner: str, name: str, gateway: int) -> None:
        started = self.run(self.trails[gateway].start(self.caller(owner).id, name, "x", None))
        assert started.id == self.open_model(owner, name).id

    @rule(owner=OWNERS, name=NAMES, gateway=GATEWAYS)
    def think(self, owner: str, name: str, gateway: int) -> None:
        if (owner, name) not in self.sessions:
            return
        self.count += 1
        content = f"thought {self.count}"
        thought = Thought(type="plan", task_id=None, agent_id="a", content=content)
        session, record = self.run(self.trails[gateway].record(self.caller(owner), thought, name))
        model = self.open_model(owner, name)
        model.records.append(record.hash)
        assert (session.id, record.seq) == (model.id, len(model.records))

    @rule(owner=OWNERS, name=NAMES, gateway=GATEWAYS, twice=st.booleans())
    def call(self, owner: str, name: str, gateway: int, twice: bool) -> None:
        self.count += 1
        call = f"c-{self.world}-{self.count}"
        body = {"kind": "call", "author": owner, "call_id": call, "tool": "t", "arguments": "", "follows": None}
        draft = Draft(once=f"call {call}", body=body)
        session, record = self.run(self.trails[gateway].append(self.caller(owner).id, name, draft))
        if twice:
            # Written a second time, as after a lost connection, it is the same record.
            again = self.run(self.trails[gateway].append(self.caller(owner).id, name, draft))
            assert again[1] == record
        model = self.open_model(owner, name)
        model.records.append(record.hash)
        assert (session.id, record.seq) == (model.id, len(model.records))
        self.calls.append((owner, name, call, record.hash, session.number))

    @rule(number=st.integers(0, 5), gateway=GATEWAYS)
    def end_call(self, number: int, gateway: int) -> None:
        if not self.calls:
            return
        owner, name, call, call_hash, session = self.calls.pop(number % len(self.calls))
        author = self.caller(owner).id
        draft = draft_result(author, call, call_hash, outcome="ok", code=None, duration_ms=1, result=None)
        self.run(self.trails[gateway].end_call(session, author, name, draft))
        self.open_model(owner, name).records.append("")

    @rule(owner=OWNERS, name=NAMES, gateway=GATEWAYS)
    def seal(self, owner: str, name: str, gateway: int) -> None:
        if (owner, name) not in self.sessions:
            return
        trail, model = self.trails[gateway], self.sessions[owner, name][-1]
        found = self.run(trail.find(self.caller(owner).id, model.id))
        try:
            sealed = self.run(trail.seal(found))
        except InvalidRequest:
            assert not model.records
            return
        assert sealed.size == len(model.records)
        model.is_sealed = True

    @rule(owner=OWNERS, name=NAMES, at=st.integers(0, 5), number=st.integers(0, 50), gateway=GATEWAYS)
    def prove(self, owner: str, name: str, at: int, number: int, gateway: int) -> None:
        if (owner, name) not in self.sessions:
            return
        line, trail = self.sessions[owner, name], self.trails[gateway]
        model = line[at % len(line)]
        if not (size := len(model.records)):
            return
        session = self.run(trail.find(self.caller(owner).id, model.id))
        model.roots[size] = session.root
        check_proof(self.run(trail.prove_inclusion(session, 1 + number % size)))
        for first, root in model.roots.items():
            proof = self.run(trail.prove_consistency(session, first))
            assert (check_proof(proof) != "", proof["first_root"]) == (True, root), "a root once given stays true"

    @rule(owner=OWNERS, name=NAMES)
    def look_at_others(self, owner: str, name: str) -> None:
        stranger = self.caller("eve").id
        try:
            self.run(self.trails[0].find(stranger, name))
        except ToolpostError:
            return
        raise AssertionError("a session is seen by its owner alone")

    @invariant()
    def agrees(self) -> None:
        for (owner, _), line in self.sessions.items():
            for model in line:
                session = self.run(self.trails[0].find(self.caller(owner).id, model.id))
                assert (session.size, session.seal is not None) == (len(model.records), model.is_sealed)

    def teardown(self) -> None:
        for (owner, _), line in self.sessions.items():
            for model in line:
                session = self.run(self.trails[1].find(self.caller(owner).id, model.id))
                verdict = self.run(self.trails[1].verify(session))
                assert (verdict.is_valid, verdict.record_count) == (True, len(model.records)), verdict
                records = self.run(self.trails[0].read_page(session, after=0, limit=1_000))
                assert all(known in ("", record.hash) for known, record in zip(model.records, records, strict=True))


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.wire)])
def test_sessions_agree_with_their_model(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if kind == "postgres":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_url()
    else:
        url = f"sqlite:{tmp_path / 'store.db'}"
    loop = asyncio.new_event_loop()
    try:
        stores = [open_part_store(url, PART.name, PART.migrations) for _ in range(2)]
        SessionMachine.loop = loop
        SessionMachine.trails = [
            loop.run_until_complete(Trail.open(loop.run_until_complete(store.__aenter__()))) for store in stores
        ]
        try:
            run_state_machine_as_test(
                SessionMachine,
                settings=settings(
                    max_examples=12,
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
