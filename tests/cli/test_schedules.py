"""`toolpost chat schedules`: what a real agent has scheduled at a gateway that runs, listed and stopped from outside."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import Run, open_process
from tests.store.conftest import url_of
from toolpost.parts.agents.testing import acp_agent_command

pytestmark = pytest.mark.wire

TOKENS = {"ada": "a" * 40, "bob": "b" * 40}


@dataclass(frozen=True)
class Talk:
    """A conversation of a caller with the agent of a gateway that runs."""

    url: str
    caller: str

    def begin(self) -> str:
        return str(self._ask("POST", "/api/threads", {})["id"])

    def say(self, thread: str, text: str) -> str:
        return str(self._ask("POST", f"/api/threads/{thread}/messages", {"text": text})["text"])

    def said_in(self, thread: str) -> list[str]:
        return [message["text"] for message in self._ask("GET", f"/api/threads/{thread}/messages")["messages"]]

    def schedule(self, thread: str, **arguments: Any) -> dict[str, Any]:
        added = json.loads(self.say(thread, f"call schedule__add {json.dumps(arguments)}"))
        assert added["ok"], added
        return dict(added["data"])

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {TOKENS[self.caller]}"}
        answer = httpx2.request(method, self.url + path, json=body, headers=headers, timeout=30)
        assert answer.is_success, answer.text
        return answer.json()


@pytest.fixture(params=["sqlite", "postgres"])
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A gateway with two callers, on each kind of store; the commands are run in its folder."""
    command, *args = acp_agent_command()
    store = url_of(request.param, request, tmp_path / "store.db")
    callers = "".join(f'[callers.{name}]\ntoken = "${{file:{name}.token}}"\n' for name in TOKENS)
    (tmp_path / "toolpost.toml").write_text(
        f"[store]\nurl = {json.dumps(store)}\n[agents.script]\ncommand = {json.dumps(command)}\n"
        f"args = {json.dumps(args)}\n{callers}"
    )
    for name, token in TOKENS.items():
        (tmp_path / f"{name}.token").write_text(token)
        (tmp_path / f"{name}.token").chmod(0o600)
    with open_process(("serve", "--listen", "127.0.0.1:0", "--json"), tmp_path, dict(os.environ)) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"].removesuffix("/mcp")


def test_what_agents_have_scheduled_is_listed(gateway: str, invoke: Run) -> None:
    ada, bob = Talk(gateway, "ada"), Talk(gateway, "bob")
    mine, theirs = ada.begin(), bob.begin()
    daily = ada.schedule(mine, prompt="say good\nmorning", cron="0 9 * * MON-FRI", timezone="Europe/Berlin")
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    once = bob.schedule(theirs, prompt="say tea", at=soon)

    listed = invoke("chat", "schedules", "--json").json
    assert {each["id"]: each["caller"] for each in listed} == {daily["id"]: "ada", once["id"]: "bob"}
    assert listed == sorted(listed, key=lambda each: datetime.fromisoformat(each["next_at"])), "the next comes first"
    assert invoke("chat", "schedules", "--caller", "bob", "--json").json == [{**once, "caller": "bob"}]
    heading, *rows = invoke("chat", "schedules").out.splitlines()
    assert heading.split() == ["id", "next", "repeats", "caller", "conversation", "prompt"]
    (row,) = [row for row in rows if row.startswith(daily["id"])]
    assert "T09:00:00+0" in row
    assert row.split("  ")[-1].strip() == "say good morning"


def test_what_was_stopped_does_not_come(gateway: str, invoke: Run) -> None:
    ada = Talk(gateway, "ada")
    thread = ada.begin()
    began = time.monotonic()
    ada.say(thread, "say ready")
    invoke("chat", "schedules")
    # On a machine that is busy, stopping takes its time too.
    soon_s = 4 + 6 * (time.monotonic() - began)
    at = (datetime.now(UTC) + timedelta(seconds=soon_s)).isoformat()
    stopped, _ = [ada.schedule(thread, prompt=f"say {word}", at=at) for word in ("never", "once")]

    ended = invoke("chat", "schedules", "--stop", stopped["id"])
    assert (ended.code, ended.out) == (0, f"`{stopped['id']}` is stopped: say never\n")
    until = time.monotonic() + soon_s + 60
    while "once" not in (said := ada.said_in(thread)):
        assert time.monotonic() < until, said
        time.sleep(0.5)
    assert "say never" not in said


def test_one_is_stopped_for_its_caller_alone(gateway: str, invoke: Run) -> None:
    ada = Talk(gateway, "ada")
    added = ada.schedule(thread := ada.begin(), prompt="say tea", cron="0 16 * * *")

    others = invoke("chat", "schedules", "--stop", added["id"], "--caller", "bob")
    assert (others.code, others.out) == (2, "")
    assert f"error: unknown schedule `{added['id']}`" in others.err
    assert "hint: `toolpost chat schedules` lists all of them" in others.err
    ended = invoke("chat", "schedules", "--caller", "ada", "--stop", added["id"], "--json")
    assert ended.json == {**added, "caller": "ada"}
    assert json.loads(ada.say(thread, "call schedule__list {}"))["data"] == []
    assert invoke("chat", "schedules", "--stop", added["id"]).code == 2


def test_to_look_makes_no_store(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("")

    assert invoke("chat", "schedules").out == "nothing is scheduled\n"
    assert invoke("chat", "schedules", "--json").json == []
    assert not (tmp_path / ".toolpost").exists()
