"""Sessions of the trail on both stores: chained, sealed once, proven, and verified when somebody was at the database."""

import sqlite3
from pathlib import Path

import anyio
import pytest

from tests.parts.trail.conftest import OpenTrail
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId, ThreadId
from toolpost.contracts.errors import InvalidArguments, InvalidRequest, NotFound
from toolpost.parts.trail import PART
from toolpost.parts.trail.service import Thought, Trail
from toolpost.parts.trail.verify_trail import check_proof, hash_of
from toolpost.store import Script, Statement, open_part_store

pytestmark = pytest.mark.anyio

ANN = Caller(id=CallerId("ann"), transport="http", session="secret-session")
BOB = Caller(id=CallerId("bob"), transport="http")


def thought(content: str, **options: object) -> Thought:
    return Thought(**{"type": "analysis", "task_id": None, "agent_id": "a1", "content": content} | options)  # type: ignore[arg-type]


async def test_sessions_are_known_beyond_what_is_kept_in_memory(
    open_trail: OpenTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolpost.parts.trail.service.NAMES_LIMIT", 3)
    async with open_trail() as trail, open_trail() as other:
        for number in range(5):
            await trail.start(ANN.id, f"s{number}", "x", None)
        await other._read_names()
        async with open_trail() as late:
            found = [
                (len(each._names), each.may_have_session(ANN.id, "s0"), await each.has_session(ANN.id, "s0"))
                for each in (trail, other, late)
            ]
            missing = [await each.has_session(ANN.id, "s9") for each in (trail, other, late)]

    assert found == [(3, True, True)] * 3
    assert missing == [False] * 3


async def test_each_record_continues_the_one_before_it(open_trail: OpenTrail) -> None:
    async with open_trail() as trail:
        session = await trail.start(ANN.id, "work", "mend the roof", "t-1")
        _, first = await trail.record(ANN, thought("it leaks\u0000 ☂"), "work")
        _, second = await trail.record(ANN, thought("mend it", type="decision", references=[first.hash]), "work")
        verdict = await trail.verify(await trail.find(ANN.id, "work"))

    assert first.body_json["prev"] == session.start
    assert second.body_json["prev"] == first.hash == hash_of(first.body_json)
    assert (first.body_json["author"], second.body_json["references"]) == ("ann", [first.hash])
    assert "leaks" not in first.body
    assert (verdict.is_valid, verdict.record_count) == (True, 2)


async def test_what_is_recorded_after_the_seal_begins_a_new_session(open_trail: OpenTrail) -> None:
    async with open_trail() as trail:
        await trail.record(ANN, thought("a"), None)
        current = await trail.find_current(ANN, None)
        sealed = await trail.seal(current)
        again = await trail.seal(current)
        later, record = await trail.record(ANN, thought("b"), sealed.id)
        verdict = await trail.verify_all(ANN.id, None)

    assert "secret-session" not in sealed.header
    assert sealed == again
    assert (later.id, record.seq) == (f"{sealed.id}.2", 1)
    assert later.header_json["continues"] == {"session": sealed.id, "root": sealed.root}
    assert (verdict.is_valid, verdict.record_count) == (True, 2)


async def test_an_empty_session_is_not_sealed(open_trail: OpenTrail) -> None:
    async with open_trail() as trail:
        session = await trail.start(ANN.id, None, "nothing", None)
        with pytest.raises(InvalidRequest, match="no records"):
            await trail.seal(session)


async def test_every_record_of_a_session_is_proven(open_trail: OpenTrail) -> None:
    async with open_trail() as trail:
        await trail.start(ANN.id, "work", "", None)
        hashes = [(await trail.record(ANN, thought(str(number)), "work"))[1].hash for number in range(11)]
        session = await trail.find(ANN.id, "work")
        inclusions = [await trail.prove_inclusion(session, each) for each in hashes]
        earlier = [await trail.prove_inclusion(session, 3, size) for size in range(3, 12)]
        consistent = [await trail.prove_consistency(session, first) for first in range(1, 12)]
        for proof in (*inclusions, *earlier, *consistent):
            assert check_proof(proof)
        with pytest.raises(InvalidArguments):
            await trail.prove_inclusion(session, 3, 2)
        with pytest.raises(InvalidArguments):
            await trail.prove_consistency(session, 12)
        with pytest.raises(NotFound):
            await trail.prove_inclusion(session, 12)
        with pytest.raises(NotFound):
            await trail.prove_inclusion(session, "0" * 64)

    assert {proof["root"] for proof in inclusions} == {session.root}


async def test_others_see_nothing_of_a_session(open_trail: OpenTrail) -> None:
    async with open_trail() as trail:
        await trail.start(ANN.id, "work", "", None)
        _, secret = await trail.record(ANN, thought("secret"), "work")
        for attempt in (
            lambda: trail.find(BOB.id, "work"),
            lambda: trail.record(BOB, thought("x"), "work"),
            lambda: trail.find_current(BOB, None),
        ):
            with pytest.raises(NotFound):
                await attempt()
        with pytest.raises(InvalidArguments, match="no record"):
            await trail.record(BOB, thought("x", references=[secret.hash]), None)
        mine = await trail.start(BOB.id, "work", "", None)
        listed = await trail.list(BOB.id, session_id=None, task_id=None, kinds=["thought"], after=(0, 0), limit=10)

    assert (mine.id, mine.size, listed) == ("work", 0, [])


async def test_two_gateways_add_to_one_session(open_trail: OpenTrail) -> None:
    agent = Caller(id=CallerId("ann"), transport="http", thread=ThreadId("t-7"))
    async with open_trail() as one, open_trail() as other:

        async def add(trail: Trail, start: int) -> None:
            for number in range(start, start + 20):
                await trail.record(agent, thought(str(number)), None)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(add, one, 0)
            tasks.start_soon(add, other, 100)
        session = await one.find(agent.id, "conversation:t-7")
        verdict = await other.verify(session)
        sessions = await one.sessions()

    assert (session.size, verdict.is_valid, len(sessions)) == (40, True, 1)


async def test_a_seal_during_writing_loses_nothing(open_trail: OpenTrail) -> None:
    async with open_trail() as one, open_trail() as other:
        await one.record(BOB, thought("first"), None)

        async def seal_often() -> None:
            for _ in range(5):
                await other.seal(await other.find_current(BOB, "main"))
                await anyio.sleep(0.01)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(seal_often)
            for number in range(30):
                await one.record(BOB, thought(str(number)), "main")
        verdict = await one.verify_all(BOB.id, None)
        listed = await one.list(BOB.id, session_id=None, task_id=None, kinds=["thought"], after=(0, 0), limit=100)

    assert (verdict.is_valid, verdict.record_count) == (True, 31)
    assert [record.content for _, record in listed] == [b"first", *(str(n).encode() for n in range(30))]


TAMPERINGS = {
    "content": ("UPDATE trail_records SET content = X'00' WHERE seq = 3", 3, "content"),
    "author": ("UPDATE trail_records SET body = replace(body, '\"ann\"', '\"bob\"') WHERE seq = 3", 3, "hash"),
    "task": ("UPDATE trail_records SET task_id = 'other' WHERE seq = 3", 3, "columns"),
    "deleted": ("DELETE FROM trail_records WHERE seq = 3", 4, "record 3 is missing"),
    "cut off": ("DELETE FROM trail_records WHERE seq = 5", 5, "it is missing"),
    "owner": ("UPDATE trail_sessions SET owner = 'bob'", 0, "another session"),
    "peaks": ("UPDATE trail_sessions SET peaks = zeroblob(64)", 5, "Merkle"),
    "node": ("UPDATE trail_nodes SET hash = zeroblob(32) WHERE number = 3", 5, "node of the Merkle tree"),
    "node deleted": ("DELETE FROM trail_nodes WHERE number = 1", 5, "node of the Merkle tree"),
    "key": ("UPDATE trail_sessions SET public_key = hex(zeroblob(32))", 5, "another key"),
    "seal": ("UPDATE trail_sessions SET seal = replace(seal, '\"size\":5', '\"size\":6')", 5, "signature"),
}


@pytest.mark.parametrize("how", TAMPERINGS)
async def test_a_changed_database_is_found(how: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    statement, seq, reason = TAMPERINGS[how]
    async with open_part_store(f"sqlite:{path}", "trail", PART.migrations) as store:
        trail = await Trail.open(store)
        await trail.start(ANN.id, "work", "", None)
        for number in range(5):
            await trail.record(ANN, thought(str(number)), "work")
        await trail.seal(await trail.find(ANN.id, "work"))
        with sqlite3.connect(path) as connection:
            connection.execute("DROP TRIGGER trail_records_are_never_changed")
            connection.execute("DROP TRIGGER trail_records_are_never_deleted")
            connection.execute(statement)
        connection.close()
        verdict = await trail.verify(await trail.find(None, "work"))

    assert (verdict.is_valid, verdict.first_broken_at) == (False, seq)
    assert reason in (verdict.reason or "")


async def test_no_proof_is_made_of_a_damaged_tree(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_part_store(f"sqlite:{path}", "trail", PART.migrations) as store:
        trail = await Trail.open(store)
        for number in range(5):
            await trail.record(ANN, thought(str(number)), None)
        session = (await trail.sessions())[0]
        await trail.prove_inclusion(session, 1)
        await trail.prove_consistency(session, 3)
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE trail_nodes SET hash = zeroblob(32)")
        connection.close()
        with pytest.raises(InvalidRequest, match="Merkle tree"):
            await trail.prove_inclusion(session, 1)
        with pytest.raises(InvalidRequest, match="Merkle tree"):
            await trail.prove_consistency(session, 3)


async def test_records_cannot_be_changed_by_accident(open_trail: OpenTrail) -> None:
    async with open_trail() as trail:
        await trail.record(ANN, thought("x"), None)

        def change() -> Script[None]:
            yield Statement("UPDATE trail_records SET task_id = 'x'")

        with pytest.raises(Exception, match="only ever added to"):
            await trail._store.scripts.run(change)
