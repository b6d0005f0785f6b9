"""Messages that are refused unread: the client learns which of its requests failed, and does not wait for it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.attacks import assert_linear, attack, loop_cpu_s, slowness, thread_cpu_s
from tests.hostile.served import Served, open_gateway, request
from tests.ways import BEHAVIOURS, ENVELOPE, STATELESS, StdioPeer, stdio_peer
from toolpost.protocol.rpc import find_request_id

pytestmark = pytest.mark.wire

META = json.dumps(ENVELOPE).encode()
HANDSHAKE = "2025-11-25"
ERAS = [HANDSHAKE, STATELESS]

MANY = b"[" + b"[]," * 60_000 + b"1]"
DEEP = b"[" * 5_000 + b"]" * 5_000
LONG = b"9" * 500
"""A number in a small message."""

FORMS = {
    "id in front": b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":%b}',
    "id at the end": b'{"method":"tools/call","params":%b,"jsonrpc":"2.0","id":%b}',
    "with spaces": b' { "id" : %b , "method" : "tools/call" , "params" : %b , "jsonrpc" : "2.0" } ',
}
COSTLY = {"many values": MANY, "deep": DEEP, "a long number": LONG}


def message(form: str, costly: str, request_id: bytes) -> bytes:
    params = b'{"name":"does__echo","arguments":{"text":%b},"_meta":%b}' % (COSTLY[costly], META)
    return FORMS[form] % ((params, request_id) if form == "id at the end" else (request_id, params))


def shake_hands(gateway: Served) -> str:
    """Open a session of the handshake era and return its id."""
    info = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "peer", "version": "0"}}
    opening = {"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": info}
    _, _, head = gateway.ask(opening, mcp_protocol_version="", mcp_method="", mcp_name="")
    return next(line.partition(": ")[2] for line in head.splitlines() if line.startswith("mcp-session-id"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with open_gateway(tmp_path_factory.mktemp("gateway")) as opened:
        yield opened


@pytest.fixture(scope="module", params=ERAS)
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StdioPeer]:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path_factory.mktemp("stdio")) as opened:
        if request.param == HANDSHAKE:
            assert "result" in opened.shake_hands()
        yield opened


@attack(
    "caller",
    "sends a request that is refused unread: too many values, too deep, a number of hundreds of digits",
    "the refusal has the request's id, so that a client gives up on that request instead of waiting for ever",
)
@pytest.mark.parametrize("request_id", [b"17", b'"a-17"'])
@pytest.mark.parametrize("costly", COSTLY)
@pytest.mark.parametrize("form", FORMS)
def test_a_refusal_on_stdio_has_the_id(peer: StdioPeer, form: str, costly: str, request_id: bytes) -> None:
    peer.send_raw(message(form, costly, request_id))
    answer = peer.receive()

    assert answer["error"]["code"] == -32600, answer
    assert answer["id"] == json.loads(request_id)


@attack(
    "caller",
    "sends the same over HTTP",
    "the refusal has the request's id, in both eras, and others are served as before",
)
@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("costly", COSTLY)
@pytest.mark.parametrize("form", FORMS)
def test_a_refusal_over_http_has_the_id(gateway: Served, form: str, costly: str, version: str) -> None:
    headers = {"mcp_protocol_version": version}
    if version == HANDSHAKE:
        headers |= {"mcp_session_id": shake_hands(gateway), "mcp_method": "", "mcp_name": ""}
    raw = gateway.send(request(message(form, costly, b'"a-17"'), connection="close", **headers))
    answer = json.loads(raw.partition(b"\r\n\r\n")[2])

    assert answer["error"]["code"] == -32600, answer
    assert answer["id"] == "a-17"


def test_a_line_over_the_limit_has_its_id_too(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("[http]\nbody_limit_bytes = 4096\n")
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as opened:
        opened.send_raw(message("id in front", "many values", b"17"))
        answer = opened.receive()
    assert (answer["id"], answer["error"]["code"]) == (17, -32600), answer


@pytest.mark.parametrize(
    "raw",
    [
        b'{"jsonrpc":"2.0","id":17,"result":%b}' % MANY,
        b'{"jsonrpc":"2.0","method":"notifications/x","params":{"id":17,"a":%b}}' % MANY,
        b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":%b,"id":17}}' % MANY,
        b'{"jsonrpc":"2.0","method":"x","params":{"a":%b,"b":",\\"id\\":17"}}' % MANY,
        b'{"jsonrpc":"2.0","method":"x","id":1.5,"params":%b}' % MANY,
        b'{"jsonrpc":"2.0","method":"x","id":"\xff","params":%b}' % MANY,
        b'{"jsonrpc":"2.0","method":"x","id":017,"params":%b}' % MANY,
        b'[{"jsonrpc":"2.0","id":17,"method":"x","params":%b}]' % MANY,
        MANY,
    ],
)
def test_what_is_no_request_is_refused_without_an_id(gateway: Served, raw: bytes) -> None:
    answer = json.loads(gateway.send(request(raw, connection="close")).partition(b"\r\n\r\n")[2])
    assert answer["error"]["code"] == -32600, answer
    assert answer["id"] is None


@attack("caller", "makes the search for the id of a refused request costly", "it reads a few bytes at both ends alone")
@pytest.mark.parametrize("piece", [b" ", b"],", b',"id":1', b'],"id" : "a"  ', b'{"id":1,', b'"', b"}", b"0,"])
def test_the_search_for_an_id_is_bounded(piece: bytes) -> None:
    def cost_s(size: int) -> float:
        raw = piece * size
        return thread_cpu_s(lambda: find_request_id(raw))

    assert_linear(cost_s, small=20_000)
    assert cost_s(400_000) < 0.2 * slowness()


@attack(
    "caller",
    "sends whole numbers of hundreds and thousands of digits, in small messages too, to plugins and to the gateway's tools",
    "they are refused before anything reads, checks, writes or adds to them, with the limit in the message",
)
@pytest.mark.parametrize("digits", [401, 4_300, 4_301, 60_000])
@pytest.mark.parametrize("sign", [b"", b"-"])
def test_long_numbers_are_refused(gateway: Served, digits: int, sign: bytes) -> None:
    number = sign + b"9" * digits
    padding = b" " * max(0, 600 - digits)
    body = (
        b'{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"does__add","arguments":{"a":%b,"b":1},"_meta":%b}%b}'
        % (number, META, padding)
    )
    before = loop_cpu_s(gateway.process.pid)
    answer = json.loads(gateway.send(request(body, mcp_name="does__add", connection="close")).partition(b"\r\n\r\n")[2])
    assert loop_cpu_s(gateway.process.pid) - before < 0.5 * slowness()
    assert answer["error"] == {"code": -32600, "message": "The message holds a number of more than 400 digits"}, answer


@pytest.mark.parametrize("digits", [19, 25, 400])
def test_numbers_within_the_limit_are_added(gateway: Served, digits: int) -> None:
    number = 10**digits - 1
    params: dict[str, Any] = {"name": "does__add", "arguments": {"a": number, "b": 1}, "_meta": ENVELOPE}
    asked = {"jsonrpc": "2.0", "id": 17, "method": "tools/call", "params": params}
    _, answer, _ = gateway.ask(asked, mcp_name="does__add")
    assert answer["result"]["structuredContent"]["data"] == 10**digits
