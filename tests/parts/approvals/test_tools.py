"""`consensus_*` and `vrf_*` as a client sees them: the seed's calls, every argument, and what must never be shown."""

import base64
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from nacl.signing import VerifyKey

from tests.endpoints.tasks.asking import Tasks
from tests.parts.approvals.bank import approvals_of, bank, requiring, served
from tests.parts.approvals.test_vrf import VECTORS
from tests.proofs import proves
from tests.ways import IN_MEMORY, QUICK_WAYS, STATELESS, WAYS, Way, server_environment
from toolpost.app import open_app, open_http
from toolpost.audit import AuditFilter
from toolpost.base.caller import Caller, Principal
from toolpost.base.ids import CallerId
from toolpost.base.signing import SigningKey
from toolpost.contracts.errors import InvalidArguments
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.parts.agents import TextChunk
from toolpost.parts.agents.turn_events import AgentEvent
from toolpost.parts.approvals.plugin import _resolve_voters
from toolpost.parts.approvals.settings import ApprovalSettings
from toolpost.parts.approvals.subject import message_of_vote
from toolpost.settings.audit import AuditSettings
from toolpost.settings.model import PluginSettings, TaskSettings
from toolpost.testing import ScriptedAgent, ScriptedSession, conversations_of, data_of, error_of, parts_with

pytestmark = pytest.mark.anyio

SECRET = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
SEED_CALL = {"seed_hex": "00ff", "input_hex": "72", "priv_key_hex": SECRET}


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    return data_of(await client.call_tool(f"approvals__{tool}", arguments))


async def refusal(client: Client, tool: str, **arguments: Any) -> Any:
    return error_of(await client.call_tool(f"approvals__{tool}", arguments))


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_the_calls_of_the_seed_succeed(way: Way, tmp_path: Path) -> None:
    """Served alone, the tools have the seed's own names; the official client validates each answer."""
    if way.transport == "stdio":
        from mcp import StdioServerParameters

        from tests.ways import TOOLPOST

        server: Any = StdioServerParameters(
            command=TOOLPOST, args=["serve", "--stdio", "--only", "approvals"], env=server_environment(), cwd=tmp_path
        )
        async with Client(server, mode=way.mode) as client:
            gossiped = data_of(await client.call_tool("consensus_gossip", {"peer_id": "phase0-test"}))
            evaluated = data_of(await client.call_tool("vrf_eval", SEED_CALL))
    else:
        config = msgspec.structs.replace(IN_MEMORY, plugins=PluginSettings(only="approvals"))
        async with open_app(config) as app, way.client_of(app) as client:
            gossiped = data_of(await client.call_tool("consensus_gossip", {"peer_id": "phase0-test"}))
            evaluated = data_of(await client.call_tool("vrf_eval", SEED_CALL))

    assert gossiped == {"events_sent": 0, "events_received": 0, "peer": "unknown", "fork": None}
    assert (len(evaluated["output_hex"]), len(evaluated["proof_hex"])) == (128, 160)


@proves("approvals__vrf_eval", "input_hex", "seed_hex", "priv_key_hex")
@proves("approvals__vrf_verify", "public_key_hex", "proof_hex", "input_hex", "seed_hex")
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_the_vrf_through_a_client(way: Way) -> None:
    private, public, alpha, proof, output = VECTORS[1].values
    async with served(IN_MEMORY, way=way) as (_, client):
        evaluated = await ask(client, "vrf_eval", input_hex=alpha, priv_key_hex=private)
        with_seed = await ask(client, "vrf_eval", input_hex=alpha, seed_hex="00", priv_key_hex=private)
        own = await ask(client, "vrf_eval", input_hex=alpha)
        same = await ask(client, "vrf_eval", input_hex=alpha)
        other = await ask(client, "vrf_eval", input_hex="73")
        good: dict[str, Any] = {"public_key_hex": public, "proof_hex": proof, "input_hex": alpha}
        verified = await ask(client, "vrf_verify", **good)
        wrong = [
            await ask(client, "vrf_verify", **good | change)
            for change in (
                {"public_key_hex": own["public_key_hex"]},
                {"proof_hex": with_seed["proof_hex"]},
                {"input_hex": "73"},
                {"seed_hex": "00"},
            )
        ]
        seeded = await ask(client, "vrf_verify", **good | {"seed_hex": "00", "proof_hex": with_seed["proof_hex"]})

    assert evaluated == {"output_hex": output, "proof_hex": proof, "public_key_hex": public}
    assert with_seed["output_hex"] != output
    assert own == same, "the gateway's own key stays the same"
    assert own["public_key_hex"] != public
    assert (own["output_hex"] != other["output_hex"], own["public_key_hex"]) == (True, other["public_key_hex"])
    assert verified == {"valid": True, "output_hex": output}
    assert wrong == [{"valid": False, "output_hex": None}] * 4
    assert seeded["valid"]


@pytest.mark.parametrize(
    "key", ["short", SECRET[:-2], SECRET + "0", "g" * 64, SECRET + "zz", f" {SECRET}", 7, [SECRET]]
)
async def test_a_bad_key_is_refused_without_being_repeated(key: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with served(IN_MEMORY) as (_, client):
            answer = await client.call_tool("approvals__vrf_eval", {"input_hex": "00", "priv_key_hex": key})

    assert error_of(answer)["code"] == "INVALID_PARAMS"
    for text in (answer.model_dump_json(), caplog.text):
        assert SECRET[:16] not in text
        assert "g" * 64 not in text


@pytest.mark.parametrize("field", ["seed_hex", "input_hex"])
async def test_bad_hexadecimal_is_refused(field: str) -> None:
    async with served(IN_MEMORY) as (_, client):
        for bad in ("0", "zz", "0x00"):
            error = await refusal(client, "vrf_eval", **{"input_hex": "00", field: bad})
            assert error["code"] == "INVALID_PARAMS"
            assert field in error["message"]


async def test_a_private_key_is_written_down_nowhere(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Not in the audit, nor the log, nor an approval, nor a stored task; the audit's digest does not depend on it either."""
    other = SECRET[::-1]
    config = requiring(url=url, tools=["approvals__*"])
    config = msgspec.structs.replace(config, tasks=TaskSettings(after_s=0), audit=AuditSettings(sample=1.0))
    with caplog.at_level(logging.DEBUG):
        async with open_app(config) as app:
            async with Client(
                open_memory_endpoint(app.call_handler, app.sdk), mode=STATELESS, extensions=[Tasks()]
            ) as client:
                for key in (SECRET, other):
                    await client.call_tool("approvals__vrf_eval", SEED_CALL | {"priv_key_hex": key})
            entries = await app.store.audit.entries(AuditFilter(tool="approvals__vrf_eval"), limit=10)
            stored = await _dump(app.store)

    assert len({entry.entry.arguments for entry in entries}) == 1
    assert "input_hex" in stored, "the contents of both calls were kept"
    assert SECRET not in caplog.text + stored
    assert other not in caplog.text + stored


async def _dump(store: Any) -> str:
    from toolpost.store.scripts import Statement
    from toolpost.store.tables import TABLES

    def read() -> Any:
        texts = []
        for name in (*(table.name for table in TABLES), "approval_rounds", "approval_votes"):
            texts.append(str((yield Statement(f"SELECT * FROM {name}"))))
        return "".join(texts)

    text: str = await store.scripts.read(read)
    return text


@proves("approvals__consensus_propose", "text", "digest", "voters", "votes", "expires_s", "requester_may_vote")
@proves("approvals__consensus_vote", "round_id", "choice")
@proves("approvals__consensus_finality", "round_id")
@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_proposal_is_voted_on(way: Way) -> None:
    mine: dict[str, Any] = {"voters": ["local", "ann"], "requester_may_vote": True}
    async with served(IN_MEMORY, way=way) as (_app, client):
        proposed = await ask(client, "consensus_propose", text="Ship it.", votes=1, **mine)
        digested = await ask(client, "consensus_propose", digest="sha256:" + "0" * 64, expires_s=5, **mine)
        others = await ask(client, "consensus_propose", text="Ship it.", voters=["ann"])
        before = await ask(client, "consensus_finality", round_id=proposed["round_id"])
        voted = await ask(client, "consensus_vote", round_id=proposed["round_id"])
        again = await ask(client, "consensus_vote", round_id=proposed["round_id"])
        after = await ask(client, "consensus_finality", round_id=proposed["round_id"])
        denied = await ask(client, "consensus_vote", round_id=digested["round_id"], choice="deny")
        errors = [
            await refusal(client, "consensus_propose"),
            await refusal(client, "consensus_propose", text="a", digest="sha256:" + "0" * 64),
            await refusal(client, "consensus_propose", text="a", voters=["ann"], votes=2),
            await refusal(client, "consensus_propose", text="a", voters=["local"]),
            await refusal(client, "consensus_propose", text="a", voters=["role:none"]),
            await refusal(client, "consensus_vote", round_id="999"),
            await refusal(client, "consensus_vote", round_id=others["round_id"]),
            await refusal(client, "consensus_vote", round_id=proposed["round_id"], choice="maybe"),
            await refusal(client, "consensus_finality", round_id="999"),
        ]

    assert (proposed["status"], proposed["needed"]) == ("PENDING", 1)
    assert digested["needed"] == 2
    assert digested["expires_at"] < proposed["expires_at"]
    assert (before["level"], after["level"]) == ("PENDING", "HARD")
    assert after["evidence"]["shown"]["text"] == "Ship it."
    assert (voted["vote_signed"], voted["is_new"], again["is_new"]) == (True, True, False)
    assert again["sig_b64"] == voted["sig_b64"]
    assert denied["status"] == "denied"
    key = VerifyKey(base64.b64decode(voted["public_key_b64"]))
    key.verify(voted["message"].encode(), base64.b64decode(voted["sig_b64"]))
    assert voted["message"].splitlines()[1:4] == [
        proposed["round_id"], after["evidence"]["subject_digest"], "approve",
    ]  # fmt: skip
    invalid, missing, forbidden = "INVALID_PARAMS", "NOT_FOUND", "FORBIDDEN"
    expected = [invalid] * 5 + [missing, forbidden, invalid, missing]
    assert [error["code"] for error in errors] == expected


@proves("approvals__consensus_vote", "sig_b64", "signed_at")
async def test_a_vote_with_a_signature_of_the_voter() -> None:
    key = SigningKey(bytes(range(32)))
    settings = ApprovalSettings(keys={"local": base64.b64encode(key.public).decode()})
    async with served(requiring(settings=settings)) as (_, client):
        proposed = await ask(client, "consensus_propose", text="a", voters=["local"], requester_may_vote=True)
        found = (await ask(client, "consensus_finality", round_id=proposed["round_id"]))["evidence"]
        at = found["created_at"]
        message = message_of_vote(int(found["round_id"]), found["subject_digest"], "approve", at)  # type: ignore[arg-type]
        good = {"sig_b64": base64.b64encode(key.sign(message)).decode(), "signed_at": at}
        unsigned = await refusal(client, "consensus_vote", round_id=found["round_id"])
        wrong_time = await refusal(
            client,
            "consensus_vote",
            round_id=found["round_id"],
            **good | {"signed_at": at[:-2] + ("8Z" if at[-2] == "9" else "9Z")},
        )
        voted = await ask(client, "consensus_vote", round_id=found["round_id"], **good)

    assert (unsigned["code"], wrong_time["code"]) == ("INVALID_REQUEST", "FORBIDDEN")
    assert voted["sig_b64"] == good["sig_b64"]


async def test_only_who_is_concerned_sees_a_round() -> None:
    async with served(IN_MEMORY) as (app, _client):
        approvals = approvals_of(app)
        opened = await approvals.open_proposal(
            text="a secret plan", digest="sha256:0", caller="ann", voters=("ben",), needed=1, expires_s=60
        )
        found = str(opened.round.id)
        seen = []
        for name in ("ann", "ben", "cleo"):
            caller = Caller(id=CallerId(name), transport="memory")
            call = app.gateway.admit(caller=caller, name="approvals__consensus_finality", arguments={"round_id": found})
            seen.append((await app.gateway.call(call)).code)

    assert seen == [None, None, "NOT_FOUND"]


def test_a_role_may_not_bring_more_voters_than_a_proposal_has() -> None:
    roles = {"all": [f"caller-{number}" for number in range(101)]}
    with pytest.raises(InvalidArguments, match="at most 100 voters"):
        _resolve_voters(["role:all"], roles)
    assert len(_resolve_voters(["role:all"], {"all": roles["all"][1:]})) == 100


async def test_an_agent_may_not_propose() -> None:
    async with open_app(IN_MEMORY) as app:
        codes = []
        for transport in ("memory", "agent"):
            call = app.gateway.admit(
                caller=Caller(id=CallerId("ann"), transport=transport),
                name="approvals__consensus_propose",
                arguments={"text": "a", "voters": ["ben"]},
            )
            codes.append((await app.gateway.call(call)).code)

    assert codes == [None, "FORBIDDEN"]


@pytest.mark.wire
@pytest.mark.parametrize("has_thread", [True, False])
async def test_an_agent_is_held_to_the_rules_and_may_not_vote(*, has_thread: bool) -> None:
    """An agent that acts for a caller would otherwise approve what it asks for itself."""
    paid: list[int] = []
    heard: list[Any] = []

    async def calls(prompt: str, session: ScriptedSession) -> AsyncGenerator[AgentEvent, None]:
        access = session.session_options.gateway
        assert access is not None
        headers = {"Authorization": f"Bearer {access.token}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            async with Client(streamable_http_client(access.url, http_client=http)) as client:
                answer = await client.call_tool("bank__pay", {"amount": 5})
                heard.append(answer)
                if answer.is_error:
                    found = error_of(answer)["details"]["round_id"]
                    heard.append(await client.call_tool("approvals__consensus_vote", {"round_id": found}))
                    vote_url = str(httpx2.URL(access.url).join("/api/approvals/vote"))
                    heard.append(await http.post(vote_url, json={"round_id": found, "choice": "approve"}))
        yield TextChunk(text="done")

    config = requiring(voters=["local"], requester_may_vote=True)
    agents = {"main": ScriptedAgent(calls)}
    ada = Caller(id=CallerId("local"), transport="http")
    async with open_app(config, plugins=[bank(paid)], parts=parts_with(agents)) as app, open_http(app):
        service = conversations_of(app)
        thread = await service.create_thread(Principal(caller=ada))

        async def prompt(text: str) -> None:
            if has_thread:
                await service.handle_message(Principal(caller=ada), thread.id, text)
            else:
                await service.invoke(Principal(caller=ada), text)

        await prompt("go")
        refused, vote = (error_of(answer) for answer in heard[:2])
        posted = heard[2].status_code
        assert paid == []
        await approvals_of(app).vote(int(refused["details"]["round_id"]), "approve", by=ada)  # type: ignore[arg-type]
        await prompt("again")

    assert (refused["code"], vote["code"], posted) == ("FORBIDDEN", "FORBIDDEN", 403)
    assert "agent may not vote" in vote["message"]
    assert paid == [5]
