"""Voting at the command line and over HTTP, against a gateway that serves."""

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import Client

from tests.cli.conftest import TOOLPOST
from tests.cli.terminal import open_terminal
from tests.hostile.attacks import attack
from tests.loaded import loaded_toolpost
from tests.parts.approvals.bank import approvals_of, bank, cast, refused, requiring, served
from tests.ways import STATELESS
from toolpost.base.passphrase import hash_passphrase
from toolpost.base.signing import SigningKey
from toolpost.contracts.errors import Forbidden
from toolpost.parts.approvals.service import parse_round_id
from toolpost.parts.approvals.settings import APPROVALS, OPERATOR_VOTER
from toolpost.parts.approvals.subject import message_of_vote
from toolpost.parts.approvals.voter import find_hash
from toolpost.settings import Config, load_config
from toolpost.settings.callers import CallerSettings
from toolpost.testing import data_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

TOML = """
[store]
url = "sqlite:store.db"

[plugins]
bundled = ["approvals"]

[callers.ann]
token = "${{file:ann}}"

[callers.ben]
passphrase_hash = "{ben}"

[callers.root]
token = "${{file:root}}"
admin = true

[callers.absent]
token = "${{TOKEN_THAT_IS_NOT_SET_HERE}}"

[approvals]
passphrase_hash = "{cli}"

[approvals.rules.money]
tools = ["bank__pay"]
voters = ["ann", "ben"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "toolpost.toml").write_text(
        TOML.format(ben=hash_passphrase("passphrase of ben"), cli=hash_passphrase("passphrase of cli"))
    )
    for name in ("ann", "root"):
        (tmp_path / name).write_text(f"token-of-{name}\n")
    return tmp_path


async def toolpost(project: Path, *arguments: str, fails: bool = False, token: str = "", **env: str) -> str:
    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            loaded_toolpost(*arguments),
            cwd=project,
            capture_output=True,
            text=True,
            timeout=60,
            input=token,
            env={**os.environ, **env},
        )

    ended = await asyncio.to_thread(run)
    assert bool(ended.returncode) is fails, ended.stderr
    return ended.stderr if fails else ended.stdout


async def test_a_person_votes_at_the_command_line(project: Path) -> None:
    paid: list[int] = []
    config = requiring(url=f"sqlite:{project / 'store.db'}", voters=["ann", "ben"])
    async with served(config, bank(paid)) as (_, client):
        asked = await refused(client, amount=5)
        found = asked["details"]["round_id"]
        listed = json.loads(await toolpost(project, "approvals", "list", "--json"))["rounds"]
        table = await toolpost(project, "approvals", "list")
        shown = await toolpost(project, "approvals", "show", found)
        await toolpost(project, "approvals", "approve", found, fails=True)
        first = json.loads(await toolpost(project, "approvals", "approve", found, "--json", token="token-of-ann\n"))
        second = await toolpost(project, "approvals", "approve", found, "--as", "ben", token="token-of-root")
        done = data_of(await client.call_tool("bank__pay", {"amount": 5}))
        denied = (await refused(client, amount=6))["details"]["round_id"]
        await toolpost(project, "approvals", "deny", denied, "--as", "ann", token="token-of-ann")
        refusal = await refused(client, amount=6)
        everything = json.loads(await toolpost(project, "approvals", "list", "--all", "--json"))["rounds"]
        missing = await toolpost(project, "approvals", "show", "99", fails=True)

    assert [one["round_id"] for one in listed] == [found]
    assert listed[0]["shown"]["arguments"] == {"amount": 5}
    assert asked["hint"].endswith("may vote: ann, ben")
    assert "toolpost" not in asked["hint"], "an agent with a shell would try the command"
    assert 'bank__pay {"amount":5}' in table
    assert '"amount":5' in shown.replace(" ", "")
    assert "Pay an amount in EUR." in shown, "voters see the contract"
    assert first["round"]["level"] == "SOFT"
    assert "2 of 2 approvals" in second
    assert (done, paid) == (1, [5])
    assert "denied" in refusal["message"]
    assert {one["round_id"]: one["status"] for one in everything} == {found: "done", denied: "denied"}
    assert "here is no round 99" in missing


@attack("agent", "votes at the command line under any name", "each vote needs a passphrase or token of the voter")
async def test_a_vote_at_the_command_line_needs_the_proof_of_the_voter(project: Path) -> None:
    config = requiring(url=f"sqlite:{project / 'store.db'}", voters=["ann", "ben", "cli"])
    async with served(config, bank([])) as (app, client):
        found = (await refused(client, amount=5))["details"]["round_id"]
        approve = ("approvals", "approve", found)
        nothing = await toolpost(project, *approve, "--as", "ann", fails=True)
        as_cli = await toolpost(project, *approve, fails=True)
        wrong = await toolpost(project, *approve, token="no token of a caller", fails=True)
        issued = await toolpost(project, *approve, token="tpd-AAAA", fails=True)
        for_another = await toolpost(project, *approve, "--as", "ben", token="token-of-ann", fails=True)
        phrase = await toolpost(project, *approve, "--as", "ben", token="passphrase of ben", fails=True)
        # Who runs the command chooses its environment, and would be compared with their own words.
        absent = await toolpost(
            project, *approve, token="chosen", fails=True, TOKEN_THAT_IS_NOT_SET_HERE="chosen", TOOLPOST_TOKEN="other"
        )
        chosen = await toolpost(project, *approve, "--as", "ben", token="chosen", fails=True, TOOLPOST_TOKEN="chosen")
        called = await toolpost(
            project, "call", "approvals__consensus_vote", f"round_id={found}", "choice=approve", fails=True
        )
        before = await approvals_of(app).read(parse_round_id(found))
        for_ben = await toolpost(project, *approve, "--as", "ben", token="token-of-root")
        shown = await toolpost(project, "approvals", "show", found)
        after = await approvals_of(app).read(parse_round_id(found))

    assert "no token on stdin" in nothing
    assert "no token on stdin" in as_cli
    assert "belongs to no caller" in wrong
    assert "absent" in wrong, "whose token could not be read here"
    assert "issued to an agent" in issued
    assert "`ann`, who may not vote for `ben`" in for_another
    assert "belongs to no caller" in phrase, "a passphrase is typed"
    assert "cannot be verified here" in absent
    assert "tokens of absent, token cannot be verified here" in chosen
    assert "cannot vote" in called
    assert "toolpost approvals" not in called, "an agent would try the command"
    assert before.votes == []
    assert "ben (cast by root) says approve" in for_ben
    assert "ben (cast by root): approve" in shown
    assert [(vote.voter, vote.cast_by) for vote in after.votes] == [("ben", "root")]


@attack("operator", "asks for a call, and votes for others on it", "who asks may not vote, in no one's name")
async def test_an_administrator_who_asks_votes_for_no_one(project: Path) -> None:
    async with served(requiring(url=f"sqlite:{project / 'store.db'}"), bank([])) as (app, _):
        opened = await approvals_of(app).open_proposal(
            text="a", digest="d", caller="root", voters=("ann", "ben", "root"), needed=2, expires_s=600
        )
        found = str(opened.round.id)
        own = await toolpost(project, "approvals", "approve", found, "--as", "ann", token="token-of-root", fails=True)

    assert "`root` may not vote" in own


def vote_at_a_terminal(project: Path, found: str, typed: str, *options: str) -> str:
    """Type a passphrase or token when it is asked for; returns all that was on the screen."""
    command = [TOOLPOST, "approvals", "approve", found, *options]
    with open_terminal(command, cwd=project, env=dict(os.environ)) as terminal:
        terminal.wait_for(": ")
        terminal.enter(typed)
        terminal.wait_for_end()
        return terminal.text


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
async def test_a_terminal_asks_for_the_passphrase_of_the_voter(project: Path) -> None:
    paid: list[int] = []
    config = requiring(url=f"sqlite:{project / 'store.db'}", voters=["ann", "ben", "cli"], votes=3)
    async with served(config, bank(paid)) as (_, client):
        found = (await refused(client, amount=5))["details"]["round_id"]
        wrong = await asyncio.to_thread(vote_at_a_terminal, project, found, "passphrase of ann", "--as", "ben")
        ben = await asyncio.to_thread(vote_at_a_terminal, project, found, "passphrase of ben", "--as", "ben")
        ann = await asyncio.to_thread(vote_at_a_terminal, project, found, "token-of-ann", "--as", "ann")
        early = await refused(client, amount=5)
        cli = await asyncio.to_thread(vote_at_a_terminal, project, found, "passphrase of cli")
        done = data_of(await client.call_tool("bank__pay", {"amount": 5}))

    assert "Passphrase of ben" in wrong
    assert "not the passphrase of `ben`" in wrong
    assert "ben says approve" in ben
    assert "passphrase of ben" not in ben, "it is not shown"
    assert "Token of ann" in ann
    assert "2 of 3" in early["message"]
    assert "cli says approve" in cli
    assert (done, paid) == (1, [5])


async def test_watching_shows_rounds_as_they_change(project: Path) -> None:
    config = requiring(url=f"sqlite:{project / 'store.db'}")
    async with served(config, bank([])) as (app, client):
        watching = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "toolpost",
            "approvals",
            "list",
            "--follow",
            "--json",
            cwd=project,
            stdout=subprocess.PIPE,
        )
        try:
            assert watching.stdout is not None
            found = (await refused(client, amount=5))["details"]["round_id"]
            first = json.loads(await asyncio.wait_for(watching.stdout.readline(), 90))
            await cast(app, found)
            second = json.loads(await asyncio.wait_for(watching.stdout.readline(), 90))
        finally:
            watching.kill()
            await watching.wait()

    assert (first["round_id"], first["status"]) == (found, "open")
    assert (second["round_id"], second["status"]) == (found, "approved")


def guarded(folder: Path) -> Config:
    """A gateway of three callers with tokens."""
    for name in ("ann", "ben", "eve"):
        (folder / name).write_text(f"token-of-{name}")
    callers = {name: CallerSettings(token=f"${{file:{name}}}", admin=name == "ben") for name in ("ann", "ben", "eve")}
    config = requiring(url=f"sqlite:{folder / 'store.db'}", voters=["ann", "ben"], votes=1)
    return msgspec.structs.replace(config, callers=callers, project=str(folder))


async def ask(url: str, path: str, name: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer token-of-{name}", "Content-Type": "application/json"}
    request = urllib.request.Request(
        url.removesuffix("/mcp") + path, headers=headers, data=None if body is None else json.dumps(body).encode()
    )

    def send() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    return await asyncio.to_thread(send)


async def test_voting_over_http(tmp_path: Path) -> None:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    from toolpost.app import open_app, open_http

    paid: list[int] = []
    async with open_app(guarded(tmp_path), plugins=[bank(paid)]) as app, open_http(app) as url:
        headers = {"Authorization": "Bearer token-of-eve"}
        async with httpx2.AsyncClient(headers=headers) as http:
            async with Client(streamable_http_client(url, http_client=http), mode=STATELESS) as client:
                found = (await refused(client, amount=5))["details"]["round_id"]
                vote = {"round_id": found, "choice": "approve"}
                seen = [await ask(url, "/api/approvals", name) for name in ("ann", "eve")]
                own = await ask(url, "/api/approvals/vote", "eve", vote)
                nobody = await ask(url, "/api/approvals", "mallory")
                bad = [
                    await ask(url, "/api/approvals/vote", "ann", body)
                    for body in ({}, 7, {"round_id": found}, vote | {"choice": "x"}, vote | {"sig_b64": 7})
                ]
                unknown = await ask(url, "/api/approvals/round?id=99", "ann")
                voted = await ask(url, "/api/approvals/vote", "ann", vote)
                shown = await ask(url, f"/api/approvals/round?id={found}", "ann")
                done = data_of(await client.call_tool("bank__pay", {"amount": 5}))
        opened = await approvals_of(app).open_proposal(
            text="a", digest="d", caller="ann", voters=("ann",), needed=1, expires_s=60
        )
        for _ in range(105):
            await approvals_of(app).open_proposal(
                text="b", digest="d", caller="cleo", voters=("cleo",), needed=1, expires_s=60
            )
        behind = await ask(url, "/api/approvals", "ann")
        first = await ask(url, "/api/approvals", "ben")
        rest = await ask(url, f"/api/approvals?before={first[1]['next']}", "ben")
        hidden = await ask(url, f"/api/approvals/round?id={opened.round.id}", "eve")
        admin = await ask(url, f"/api/approvals/round?id={opened.round.id}", "ben")
        status = (await approvals_of(app).read(parse_round_id(found))).status

    assert [len(answer["rounds"]) for _, answer in seen] == [1, 1]
    assert [one["round_id"] for one in behind[1]["rounds"]] == [str(opened.round.id)], "behind 105 of others"
    assert (len(first[1]["rounds"]), len(rest[1]["rounds"]), rest[1]["next"]) == (100, 6, None)
    assert (own[0], own[1]["error"]["code"]) == (403, "FORBIDDEN")
    assert nobody[0] == 401
    assert {code for code, _ in bad} == {400}
    assert unknown[0] == hidden[0] == 404
    assert voted[1]["round"]["status"] == "approved"
    assert shown[1]["votes"][0]["voter"] == "ann"
    assert admin[0] == 200
    assert (done, status.value) == (1, "done")


async def test_peers_and_their_history_are_shown(project: Path) -> None:
    async with served(requiring(url=f"sqlite:{project / 'store.db'}"), bank([])):
        key = json.loads(await toolpost(project, "approvals", "peers", "--json"))["key"]
        with (project / "toolpost.toml").open("a") as file:
            file.write(f'[peers.berlin]\nurl = "https://berlin.example"\nkey = "{key}"\n')
        table = await toolpost(project, "approvals", "peers")

    assert table.splitlines()[0] == f"the key of this gateway: {key}"
    assert table.splitlines()[2].split(maxsplit=2)[:2] == ["berlin", "https://berlin.example"]
    assert "no contradiction" in table


async def test_who_signs_with_a_key_of_their_own_votes_at_the_command_line(project: Path) -> None:
    key = SigningKey(b"k" * 32)
    with (project / "toolpost.toml").open("a") as file:
        file.write(f'[approvals.keys]\nann = "{base64.b64encode(key.public).decode()}"\n')
    async with served(requiring(url=f"sqlite:{project / 'store.db'}", voters=["ann"]), bank([])) as (app, client):
        found = (await refused(client, amount=5))["details"]["round_id"]
        view = await approvals_of(app).read(parse_round_id(found))
        at = approvals_of(app).wall(view.now)
        signed = key.sign(message_of_vote(view.round.id, view.round.subject_digest, "approve", at))
        unsigned = await toolpost(project, "approvals", "approve", found, "--as", "ann", fails=True)
        options = ("--as", "ann", "--signature", base64.b64encode(signed).decode(), "--signed-at", at, "--json")
        vote = json.loads(await toolpost(project, "approvals", "approve", found, *options))

    assert "--signature" in unsigned
    assert (vote["vote"]["choice"], vote["round"]["level"]) == ("approve", "ABSOLUTE")


async def test_a_passphrase_from_the_environment_of_who_votes_proves_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project / "toolpost.toml"
    file.write_text(re.sub(r'(\[approvals\][^\[]*?passphrase_hash = )"[^"]*"', r'\1"${MADE_UP}"', file.read_text()))
    monkeypatch.setenv("MADE_UP", hash_passphrase("made up"))
    config = load_config(file)

    assert APPROVALS.of(config).passphrase_hash == "${MADE_UP}"
    with pytest.raises(Forbidden, match="proves nothing here"):
        find_hash(config, OPERATOR_VOTER)
