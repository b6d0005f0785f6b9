"""Voting at the command line and over HTTP, against a gateway that serves."""

import asyncio
import base64
import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import Client

from tests.loaded import loaded_toolpost
from tests.parts.approvals.bank import approvals_of, bank, cast, refused, requiring, served
from tests.ways import STATELESS
from toolpost.base.signing import SigningKey
from toolpost.parts.approvals.service import parse_round_id
from toolpost.parts.approvals.subject import message_of_vote
from toolpost.settings import CallerSettings, Config
from toolpost.testing import data_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

TOML = """
[store]
url = "sqlite:store.db"

[approvals.rules.money]
tools = ["bank__pay"]
voters = ["ann", "ben"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "toolpost.toml").write_text(TOML)
    return tmp_path


async def toolpost(project: Path, *arguments: str, fails: bool = False) -> str:
    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(loaded_toolpost(*arguments), cwd=project, capture_output=True, text=True, timeout=60)

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
        first = json.loads(await toolpost(project, "approvals", "approve", found, "--as", "ann", "--json"))
        second = await toolpost(project, "approvals", "approve", found, "--as", "ben")
        done = data_of(await client.call_tool("bank__pay", {"amount": 5}))
        denied = (await refused(client, amount=6))["details"]["round_id"]
        await toolpost(project, "approvals", "deny", denied, "--as", "ann")
        refusal = await refused(client, amount=6)
        everything = json.loads(await toolpost(project, "approvals", "list", "--all", "--json"))["rounds"]
        missing = await toolpost(project, "approvals", "show", "99", fails=True)

    assert [one["round_id"] for one in listed] == [found]
    assert listed[0]["shown"]["arguments"] == {"amount": 5}
    assert f"`toolpost approvals approve {found} --as ann`" in asked["hint"], "a command that works: `cli` may not vote"
    assert 'bank__pay {"amount":5}' in table
    assert '"amount":5' in shown.replace(" ", "")
    assert "Pay an amount in EUR." in shown, "voters see the contract"
    assert first["round"]["level"] == "SOFT"
    assert "2 of 2 approvals" in second
    assert (done, paid) == (1, [5])
    assert "denied" in refusal["message"]
    assert {one["round_id"]: one["status"] for one in everything} == {found: "done", denied: "denied"}
    assert "here is no round 99" in missing


async def test_watching_shows_rounds_as_they_change(project: Path) -> None:
    config = requiring(url=f"sqlite:{project / 'store.db'}")
    async with served(config, bank([])) as (app, client):
        watching = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "toolpost", "approvals", "watch", "--json", cwd=project, stdout=subprocess.PIPE
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
    callers = {name: CallerSettings(token_file=name, admin=name == "ben") for name in ("ann", "ben", "eve")}
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
        key = json.loads(await toolpost(project, "approvals", "key", "--json"))["key"]
        with (project / "toolpost.toml").open("a") as file:
            file.write(f'[peers.berlin]\nurl = "https://berlin.example"\nkey = "{key}"\n')
        table = await toolpost(project, "approvals", "peers")

    assert table.splitlines()[1].split(maxsplit=2)[:2] == ["berlin", "https://berlin.example"]
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
