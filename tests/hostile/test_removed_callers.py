"""Callers who may come in no more, or whose token was changed: what they have open ends, and what others have goes on."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from tests.hostile.attacks import attack
from tests.ways import ENVELOPE, STATELESS
from tests.wire.callers import Project
from tests.wire.test_callers import OPENING, ask, served
from toolpost.app.reload import apply_config
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.endpoints.auth.oauth_rules import OAuthRules
from toolpost.endpoints.auth.roster import CallerTable, Claims, KnownCaller, Roster

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

END = b"0\r\n\r\n"
"""The last chunk of a response: its stream was closed in order."""


@asynccontextmanager
async def stream(
    url: str, token: str, verb: str, path: str, message: Any = None, **headers: str
) -> AsyncIterator[SocketStream]:
    """Ask for a stream on a connection of its own, and wait for the head of the response."""
    host, _, port = url.split("/")[2].partition(":")
    body = json.dumps(message).encode() if message else b""
    fields = {"host": f"{host}:{port}", "authorization": f"Bearer {token}", "content-type": "application/json"}
    fields |= {"accept": "application/json, text/event-stream", "content-length": str(len(body))}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = f"{verb} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    async with await anyio.connect_tcp(host, int(port)) as connection:
        await connection.send(head.encode() + b"\r\n" + body)
        with anyio.fail_after(30):
            got = b""
            while b"\r\n\r\n" not in got:
                got += await connection.receive()
        assert got.startswith(b"HTTP/1.1 200"), got
        assert b"text/event-stream" in got.lower(), got
        yield connection


async def rest_of(connection: SocketStream, within_s: float) -> bytes | None:
    """Return what still comes until the stream is closed, None if it stays open for this long."""
    rest = b""
    with anyio.move_on_after(within_s):
        while not rest.endswith(END):
            try:
                rest += await connection.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return rest
        return rest
    return None


@asynccontextmanager
async def every_stream(app: Any, url: str, name: str) -> AsyncIterator[dict[str, SocketStream]]:
    """Open one stream of each kind as a caller."""
    token = f"{name}-token"
    session = (await ask(url, token, OPENING))[2]
    api = url.removesuffix("/mcp") + "/api/threads"
    thread = (await ask(api, token, {}, x_toolpost="1"))[1]["id"]
    listen = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
    message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": listen}
    modern = {"mcp_protocol_version": STATELESS, "mcp_method": "subscriptions/listen"}
    handshake = {"mcp_protocol_version": "2025-06-18", "mcp_session_id": session}
    async with (
        stream(url, token, "GET", "/mcp", **handshake) as get,
        stream(url, token, "POST", "/mcp", message, **modern) as listening,
        stream(url, token, "GET", f"/api/threads/{thread}/events") as events,
    ):
        yield {"GET": get, "listen": listening, "thread": events}


@pytest.mark.parametrize("change", ["removed", "rotated"])
@attack(
    "caller",
    "keeps streams open (server messages, subscriptions, a conversation) after being removed, or after its token was changed",
    "every stream of the old token is closed at once, in both eras; those of other callers go on",
)
async def test_streams_of_a_removed_caller_are_closed(change: str, tmp_path: Path) -> None:
    project = Project(tmp_path).write("ada", "bob")
    async with served(project.load()) as (app, url):
        async with every_stream(app, url, "ada") as kept, every_stream(app, url, "bob") as lost:
            project.write(*(["ada"] if change == "removed" else ["ada", "bob"]))
            if change == "rotated":
                (tmp_path / "bob").write_text("another-token")
            await apply_config(app, project.load)
            ended = {kind: await rest_of(connection, 30) for kind, connection in lost.items()}
            still = {kind: await rest_of(connection, 0.2) for kind, connection in kept.items()}

    assert [kind for kind, rest in ended.items() if rest is None] == []
    assert [kind for kind, rest in ended.items() if rest is not None and not rest.endswith(END)] == []
    assert still == {"GET": None, "listen": None, "thread": None}


async def test_a_change_that_leaves_a_caller_alone_closes_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path).write("ada")
    async with served(project.load()) as (app, url), every_stream(app, url, "ada") as kept:
        project.write('ada\ntools = ["does__*"]', "bob")
        await apply_config(app, project.load)
        rest = await rest_of(kept["thread"], 0.2)

    assert rest is None


class Issuer:
    """An authorization server whose every token says the same."""

    rules = OAuthRules(resource="https://tools.example/mcp")

    async def verify(self, token: bytes) -> Claims:
        return Claims(subject=token.decode(), client=None, scopes=frozenset(), expires_at=time.time() + 60)


def subject(name: str, *subjects: str) -> KnownCaller:
    return KnownCaller(name=name, subjects=frozenset(subjects))


async def test_streams_of_access_tokens_end_when_their_claims_fit_nobody_or_somebody_else() -> None:
    issuer = Issuer()
    roster = Roster(CallerTable(callers=(subject("ada", "u1"), subject("bob", "u2")), verifier=issuer))
    left: list[str] = []
    with ExitStack() as stack:
        for token in (b"u1", b"u2"):
            admission = await roster.verify(token)
            stack.enter_context(roster.on_removal(admission, partial(left.append, str(admission.caller.id))))
        roster.replace(CallerTable(callers=(subject("ada", "u1"), subject("bob", "u2", "u3")), verifier=issuer))
        assert left == [], "the same tokens still stand for the same callers"
        roster.replace(CallerTable(callers=(subject("ada", "u1"), subject("carol", "u2")), verifier=issuer))
        assert left == ["bob"]
        roster.replace(CallerTable(callers=(subject("ada", "u1"),)))
        assert left == ["bob", "ada"], "there is no authorization server any more"


async def test_what_was_opened_with_a_lent_token_ends_when_that_is_taken_back() -> None:
    roster = Roster()
    roster.delegate(b"delegated", Caller(id=CallerId("local"), transport="http"), ())
    left: list[str] = []
    admission = roster.find(b"delegated")
    assert admission is not None
    with roster.on_removal(admission, lambda: left.append("delegated")):
        roster.replace(CallerTable())
        assert left == []
        roster.revoke(b"delegated")
        assert left == ["delegated"]
