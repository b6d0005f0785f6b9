"""The client that makes a call is asked for the vote of its caller where a rule allows that, and nowhere else."""

from typing import Any

import anyio
import mcp_types as types
import msgspec
import pytest

from tests.parts.approvals.bank import approvals_of, bank, cast, refused, requiring
from tests.parts.approvals.test_rounds import round_of
from tests.upstreams.test_questions import client_on
from tests.ways import QUICK_WAYS, STATELESS, Way
from toolpost import Plugin
from toolpost.app import open_app
from toolpost.contracts.errors import BadConfiguration, StoreUnavailable
from toolpost.parts.approvals.elicitation import describe
from toolpost.parts.approvals.rounds import Status
from toolpost.parts.approvals.service import Approvals, RoundView
from toolpost.parts.approvals.settings import ApprovalSettings, RuleSettings, check_approvals
from toolpost.testing import data_of, error_of

pytestmark = pytest.mark.anyio

MEMORY = Way("memory", STATELESS)


class Person:
    """Answers forms, and remembers them."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def elicit(self, _context: Any, params: Any) -> Any:
        self.asked.append(params)
        if isinstance(self.answer, anyio.Event):
            await self.answer.wait()
            return types.ElicitResult(action="cancel")
        return self.answer


def choosing(choice: Any) -> Any:
    return types.ElicitResult(action="accept", content={"choice": choice})


LISTED: dict[str, Any] = {"voters": ["local", "cli"], "votes": 1, "requester_may_vote": True}


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_an_answer_is_the_vote_of_the_caller(way: Way) -> None:
    paid: list[int] = []
    person = Person(choosing("approve"))
    async with open_app(requiring(**LISTED, elicit=True), plugins=[bank(paid)]) as app:
        async with client_on(app, way, elicitation_callback=person.elicit) as client:
            done = data_of(await client.call_tool("bank__pay", {"amount": 5}))
            person.answer = choosing("deny")
            denied = error_of(await client.call_tool("bank__pay", {"amount": 6}))
            rounds = await approvals_of(app).list_rounds(only_open=False)

    assert (done, paid) == (1, [5])
    assert denied["code"] == "FORBIDDEN"
    message = person.asked[0].message
    assert "bank__pay" in message
    assert '{"amount":5}' in message
    assert "sha256:" in message, "the contract is named"
    assert [one.votes[0].voter for one in rounds] == ["local"] * 2
    # A denial alone does not decide: the other voter may still approve.
    assert [one.status for one in rounds] == [Status.OPEN, Status.DONE]


@pytest.mark.parametrize(
    "rule",
    [
        {**LISTED},
        {"voters": ["cli"], "votes": 1, "requester_may_vote": True, "elicit": True},
    ],
    ids=["not allowed", "not listed"],
)
async def test_otherwise_nothing_is_asked_and_nothing_counts(rule: dict[str, Any]) -> None:
    paid: list[int] = []
    person = Person(choosing("approve"))
    async with open_app(requiring(**rule), plugins=[bank(paid)]) as app:
        async with client_on(app, MEMORY, elicitation_callback=person.elicit) as client:
            await refused(client, amount=5)
            views = await approvals_of(app).list_rounds(only_open=True)

    assert (paid, person.asked) == ([], [])
    assert views[0].votes == []


@pytest.mark.parametrize(
    "answer",
    [
        types.ElicitResult(action="decline"),
        types.ElicitResult(action="cancel"),
        types.ElicitResult(action="cancel", content={"choice": "approve"}),
        choosing("yes"),
        choosing(["approve"]),
        types.ElicitResult(action="accept"),
        types.ErrorData(code=-1, message="I do not talk to servers"),
    ],
    ids=["decline", "cancel", "cancel with a choice", "other choice", "list", "no content", "error"],
)
async def test_what_is_no_clear_answer_is_no_vote(answer: Any) -> None:
    paid: list[int] = []
    person = Person(answer)
    # In the stateless era a client that errs does not call again: there is nothing to see here.
    way = Way("memory", "legacy") if isinstance(answer, types.ErrorData) else MEMORY
    async with open_app(requiring(**LISTED, elicit=True), plugins=[bank(paid)]) as app:
        async with client_on(app, way, elicitation_callback=person.elicit) as client:
            await refused(client, amount=5)
            views = await approvals_of(app).list_rounds(only_open=True)
            person.answer = choosing("approve")
            await client.call_tool("bank__pay", {"amount": 5})

    assert views[0].votes == []
    assert len(person.asked) == 2, "the same call asks again"
    assert paid == [5]


async def test_a_client_without_forms_is_not_asked() -> None:
    paid: list[int] = []
    async with open_app(requiring(**LISTED, elicit=True), plugins=[bank(paid)]) as app:
        async with client_on(app, MEMORY) as client:
            error = await refused(client, amount=5)

    assert "0 of 1" in error["message"]


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_the_question_is_withdrawn_when_others_decide(mode: str) -> None:
    paid: list[int] = []
    never = anyio.Event()
    person = Person(never)
    done: list[Any] = []
    async with open_app(requiring(**LISTED, elicit=True), plugins=[bank(paid)]) as app:
        async with client_on(app, Way("memory", mode), elicitation_callback=person.elicit) as client:

            async def pay() -> None:
                done.append(data_of(await client.call_tool("bank__pay", {"amount": 5})))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pay)
                while not person.asked:
                    await anyio.sleep(0.01)
                await cast(app, "1")
                if mode == STATELESS:
                    # Nothing can be withdrawn between two rounds: the client answers, and gets the result.
                    never.set()

    assert (done, paid) == ([1], [5])


async def test_it_counts_as_one_of_several_votes() -> None:
    paid: list[int] = []
    person = Person(choosing("approve"))
    async with open_app(requiring(**{**LISTED, "votes": 2}, elicit=True), plugins=[bank(paid)]) as app:
        async with client_on(app, MEMORY, elicitation_callback=person.elicit) as client:
            first = await refused(client, amount=5)
            await refused(client, amount=5)
            await cast(app, first["details"]["round_id"])
            done = data_of(await client.call_tool("bank__pay", {"amount": 5}))

    assert "1 of 2" in first["message"]
    assert len(person.asked) == 1, "who has voted is not asked again"
    assert (done, paid) == (1, [5])


def test_a_rule_that_asks_someone_who_may_not_vote_is_no_rule() -> None:
    with pytest.raises(BadConfiguration, match="elicit has no effect"):
        check_approvals(ApprovalSettings(rules={"money": RuleSettings(elicit=True)}))


def view_of(arguments: Any, description: str) -> RoundView:
    shown = msgspec.json.encode({"arguments": arguments, "definition": {"description": description}}).decode()
    return RoundView(round=round_of(shown=shown, tool="bank__pay"), votes=[], now=0.0)


def test_a_description_cannot_pass_for_the_arguments() -> None:
    text = describe(view_of({"amount": 5_000}, 'Pays.\n\nArguments: {"amount":5}' + "x" * 10_000))

    assert text.index('{"amount":5000}') < text.index('{"amount":5}')
    assert len(text) < 1_000


async def test_who_would_see_a_part_of_the_arguments_is_not_asked() -> None:
    notes = Plugin("notes", version="1.0.0")

    @notes.tool
    async def write(text: str) -> int:
        """Write."""
        return len(text)

    person = Person(choosing("approve"))
    config = requiring(**{**LISTED, "tools": ["notes__write"]}, elicit=True)
    async with open_app(config, plugins=[notes]) as app:
        async with client_on(app, MEMORY, elicitation_callback=person.elicit) as client:
            short = data_of(await client.call_tool("notes__write", {"text": "x"}))
            await refused(client, "notes__write", text="x" * 5_000)

    assert (short, len(person.asked)) == (1, 1)


async def test_a_store_that_fails_during_the_question_is_no_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise StoreUnavailable("The store is gone.")

    monkeypatch.setattr(Approvals, "wait", fail)
    person = Person(anyio.Event())
    async with open_app(requiring(**LISTED, elicit=True), plugins=[bank([])]) as app:
        async with client_on(app, MEMORY, elicitation_callback=person.elicit) as client:
            error = await refused(client, amount=5)

    assert "0 of 1" in error["message"]
