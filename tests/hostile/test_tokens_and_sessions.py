"""Tokens, sessions and views, attacked by strangers and by callers who want what is another caller's.

What `tests/wire/test_callers.py`, `test_visibility.py` and `test_oauth.py` prove of honest callers is not repeated here.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.hostile.attacks import attack
from tests.hostile.served import Served, call_body, head, open_gateway, receive_all, request, status_of
from tests.loaded import loaded_toml
from tests.ways import ENVELOPE
from tests.wire.test_callers import OPENING
from tests.wire.test_visibility import LIBRARY

pytestmark = pytest.mark.wire

ADA, BOB = "ada-token-of-more-than-32-characters", "bob-token-of-more-than-32-characters"
CONFIG = f"""
[discovery]
mode = "both"

[callers.ada]
token = "${{ADA}}"

[callers.bob]
token = "${{BOB}}"
tools = ["does__echo", "automatic_*"]

[plugins]
bundled = ["time"]

[servers.library]
{loaded_toml(LIBRARY)}
"""
HANDSHAKE = {"mcp_protocol_version": "2025-06-18", "mcp_method": "", "mcp_name": ""}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with open_gateway(tmp_path_factory.mktemp("gateway"), CONFIG, ADA=ADA, BOB=BOB) as served:
        yield served


def bearer(token: str) -> str:
    return f"Bearer {token}"


CREDENTIALS = {
    "none": [],
    "no scheme": [ADA],
    "another scheme": [
        f"Basic {ADA}",
    ],
    "a scheme that only begins alike": [f"Bearerx {ADA}"],
    "no space": [f"Bearer{ADA}"],
    "a prefix of it": [bearer(ADA[:-1])],
    "more than it": [bearer(f"{ADA}x")],
    "in capitals": [bearer(ADA.upper())],
    "two in one": [bearer(f"{ADA},{BOB}")],
    "quoted": [bearer(f'"{ADA}"')],
    "the right one first": [bearer(ADA), bearer("x" * 40)],
    "the right one last": [bearer("x" * 40), bearer(ADA)],
    "twice the same": [bearer(ADA), bearer(ADA)],
    "two callers": [bearer(ADA), bearer(BOB)],
    "a control character": [bearer(f"{ADA}\x01")],
}


@attack(
    "stranger",
    "shows a token in another scheme, in part, in capitals, twice, or beside another caller's",
    "exactly one `Authorization: Bearer` header with exactly one known token lets a caller in; a second header is refused",
)
@pytest.mark.parametrize("shown", CREDENTIALS.values(), ids=CREDENTIALS)
def test_credentials_that_are_not_quite_right(gateway: Served, shown: list[str]) -> None:
    body = call_body()
    lines = "".join(f"authorization: {value}\r\n" for value in shown).encode("latin-1")
    received = gateway.send(head(body, connection="close")[:-2] + lines + b"\r\n" + body)

    assert status_of(received) in ({400} if len(shown) > 1 else {400, 401})
    assert not any(token.encode() in received for token in (ADA, BOB))


@attack(
    "stranger",
    "puts a valid token into the query, a cookie, another header or the body instead of `Authorization`",
    "the request is refused with 401: tokens in URLs end up in logs, and cookies are sent by any page",
)
def test_tokens_in_other_places(gateway: Served) -> None:
    message = json.loads(call_body())
    message["params"]["_meta"] = ENVELOPE | {"authorization": bearer(ADA), "token": ADA}
    answers = [
        gateway.ask(
            message, path=f"/mcp?token={ADA}&access_token={ADA}&authorization={bearer(ADA).replace(' ', '%20')}"
        ),
        gateway.ask(message, cookie=f"token={ADA}; authorization={ADA}"),
        gateway.ask(message, x_api_key=ADA, x_authorization=bearer(ADA), proxy_authorization=bearer(ADA)),
        gateway.ask(None, path=f"/metrics?token={ADA}", verb="GET"),
        gateway.ask(None, path=f"/api/servers?token={ADA}", verb="GET"),
        gateway.ask(None, path=f"/api/threads?access_token={ADA}", verb="GET"),
    ]

    assert [status for status, _, _ in answers] == [401] * len(answers)


@attack(
    "stranger",
    "claims to come through a proxy that vouches for a caller or an address: X-Forwarded-For, Forwarded, X-Forwarded-User",
    "nothing that a request says about itself stands in for a token",
)
def test_a_request_that_vouches_for_itself(gateway: Served) -> None:
    status, _, _ = gateway.ask(
        json.loads(call_body()),
        x_forwarded_for="127.0.0.1",
        forwarded="for=127.0.0.1;host=localhost",
        x_forwarded_user="ada",
        x_real_ip="::1",
        x_forwarded_host="localhost",
        x_original_url="/healthz",
        x_http_method_override="GET",
    )

    assert status == 401


@attack(
    "operator",
    "looks for tokens in the log, the audit and the store after callers have come in, rightly and wrongly",
    "no token is written anywhere, whether valid or refused",
)
def test_tokens_in_logs(gateway: Served) -> None:
    secret = "wrong-token-that-nobody-may-read-again"
    gateway.ask(json.loads(call_body()), authorization=bearer(ADA))
    gateway.ask(json.loads(call_body()), authorization=bearer(secret))
    gateway.ask(json.loads(call_body()), path=f"/mcp?token={ADA}")
    gateway.ask(json.loads(call_body()), path=f"/nowhere/{secret}")
    gateway.send(b"POST /mcp HTTP/1.1\r\nauthorization : Bearer " + ADA.encode() + b"\r\n\r\n")
    written = [file.read_bytes() for file in gateway.folder.rglob("*") if file.is_file()]

    assert written
    assert not any(token.encode() in content for token in (ADA, BOB, secret) for content in written)


# Sessions


def opened(gateway: Served, token: str, **headers: str) -> tuple[str, int]:
    """Open a session of the handshake era; return its id and the status."""
    status, _, answered = gateway.ask(OPENING, authorization=bearer(token), **(HANDSHAKE | headers))
    ids = [line.partition(": ")[2] for line in answered.split("\r\n") if line.startswith("mcp-session-id")]
    return (ids or [""])[0], status


def listing(request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/list"}


@attack(
    "caller",
    "opens the event stream of another caller's session, to read its server's messages",
    "the session does not exist for other callers: 404, and the owner's stream continues",
)
def test_anothers_event_stream(gateway: Served) -> None:
    session, _ = opened(gateway, ADA)
    stream = HANDSHAKE | {"mcp_session_id": session, "accept": "text/event-stream", "content_type": ""}
    foreign = [
        gateway.ask(None, verb="GET", authorization=bearer(BOB), **stream)[0],
        gateway.ask(None, verb="GET", authorization=bearer(BOB), last_event_id="1", **stream)[0],
        gateway.ask(None, verb="GET", **stream)[0],
    ]
    with closing(gateway.connect()) as own:
        own.sendall(head(None, verb="GET", authorization=bearer(ADA), **stream))
        began = own.recv(4096)

    assert foreign == [404, 404, 401]
    assert status_of(began) == 200


@attack(
    "caller",
    "sends a session id of its own, so that another caller uses a known session",
    "only the gateway makes session ids, at random; an unknown one is 404, also on `initialize`",
)
def test_a_session_id_of_ones_own(gateway: Served) -> None:
    chosen = "0" * 32
    first, second = opened(gateway, BOB)[0], opened(gateway, BOB)[0]
    brought, status = opened(gateway, BOB, mcp_session_id=chosen)
    used, _, _ = gateway.ask(listing(), authorization=bearer(ADA), **(HANDSHAKE | {"mcp_session_id": chosen}))

    assert brought != chosen
    assert status in (200, 404)
    assert used == 404
    assert len(first) >= 32
    assert first[:8] != second[:8], "nothing of one tells the next"


@attack(
    "caller",
    "answers a question, cancels a call or closes a session under another caller's session id",
    "404 each time; the call goes on and is answered",
)
def test_anothers_call(gateway: Served) -> None:
    session, _ = opened(gateway, ADA)
    named = HANDSHAKE | {"mcp_session_id": session}
    params = {"name": "does__sleep", "arguments": {"seconds": 0.4}}
    slow = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).encode()
    with closing(gateway.connect()) as own:
        own.sendall(request(slow, authorization=bearer(ADA), connection="close", **named))
        foreign = [
            gateway.ask(message, authorization=bearer(BOB), **named)[0]
            for message in (
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}},
                {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 7}},
                {"jsonrpc": "2.0", "id": 7, "result": {"content": []}},
            )
        ]
        foreign.append(gateway.ask(None, verb="DELETE", authorization=bearer(BOB), **named)[0])
        answer = receive_all(own)

    assert foreign == [404] * 4
    assert b"done" in answer
    assert b"CANCELLED" not in answer


# Views


def asked(gateway: Served, method: str, params: dict[str, Any], *, path: str = "/mcp", name: str = "") -> Any:
    """Ask as bob; the answer without what names the call."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": ENVELOPE}}
    options = {"authorization": bearer(BOB), "mcp_method": method, "mcp_name": name}
    status, answer, _ = gateway.ask(message, path=path, **options)
    if isinstance(answer, dict):
        answer.get("result", {}).pop("_meta", None)
    return status, answer


GUESSES: dict[str, tuple[str, Any]] = {
    "calls a tool": ("tools/call", lambda name: {"name": name, "arguments": {}}),
    "calls with wrong arguments": ("tools/call", lambda name: {"name": name, "arguments": {"nothing": 1}}),
    "calls through automatic_eval": (
        "tools/call",
        lambda name: {"name": "automatic_eval", "arguments": {"toolName": name, "arguments": {}}},
    ),
    "gets a prompt": ("prompts/get", lambda name: {"name": name, "arguments": {"title": "x"}}),
    "completes": (
        "completion/complete",
        lambda name: {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "title", "value": "x"}},
    ),
    "reads": ("resources/read", lambda name: {"uri": f"book://{name}"}),
}
HIDDEN = {"prompts/get": "library__review", "completion/complete": "library__review", "resources/read": "one"}


@attack(
    "caller",
    "looks for hidden items by comparing errors of calls, `automatic_eval`, prompts, completions and resources",
    "existing and unknown names give the same answer to the byte, apart from the requested name",
)
@pytest.mark.parametrize("guess", GUESSES)
def test_guesses(gateway: Served, guess: str) -> None:
    method, params = GUESSES[guess]
    hidden = HIDDEN.get(method, "does__sleep")
    absent = hidden[:-1] + "q"

    def answer(name: str) -> str:
        called = params(name)
        status, said = asked(gateway, method, called, name=called.get("name") or called.get("uri") or "")
        assert not (status == 200 and "result" in said and not said["result"].get("isError")), said
        return json.dumps([status, said]).replace(name, "NAME")

    # The library is started by the first who may see it: its resources are there to be guessed.
    _, seen, _ = gateway.ask(
        {"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {"_meta": ENVELOPE}},
        authorization=bearer(ADA),
        mcp_method="resources/list",
        mcp_name="",
    )
    assert "book://one" in json.dumps(seen)
    assert answer(hidden) == answer(absent)


@attack(
    "caller",
    "searches with `automatic_mcp` for hidden tools, by name and by need",
    "neither the tools nor their servers' names are in the answer, and they are not counted",
)
def test_searches(gateway: Served) -> None:
    params = {"name": "automatic_mcp", "arguments": {"query": "sleep, review a book", "forceRefresh": True}}
    status, answer = asked(gateway, "tools/call", params, name="automatic_mcp")

    text = json.dumps(answer)
    assert status == 200
    assert "does__echo" in text
    assert "does__sleep" not in text
    assert "library" not in text
    assert json.loads(answer["result"]["content"][0]["text"])["totalAvailable"] == 1


@attack(
    "caller",
    "asks for another server's part by its path: `/mcp/server/NAME`, `/mcp/tags/TAG`",
    "a path without visible items is not found, like an unknown path",
)
def test_paths_to_what_is_hidden(gateway: Served) -> None:
    answers = {
        name: asked(gateway, "tools/list", {}, path=f"/mcp/server/{name}") for name in ("library", "lirbrary", "time")
    }

    assert {status for status, _ in answers.values()} == {404}
    said = {json.dumps(answer).replace(name, "NAME") for name, (_, answer) in answers.items()}
    assert len(said) == 1
