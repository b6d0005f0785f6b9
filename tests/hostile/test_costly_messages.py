"""Messages that are costly to read, sent to a gateway that others use: the event loop stays with the others."""

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import open_process
from tests.hostile.attacks import attack, loop_cpu_s, slowness
from tests.ways import BEHAVIOURS, ENVELOPE, ROOT, STATELESS, StdioPeer, stdio_peer

pytestmark = pytest.mark.wire

LIMIT = 4 * 1024 * 1024
LOOP_S = 3.0
"""For a message of 4 MB in all: to read it from a socket alone takes 0.1 s. What is guarded against took minutes."""

HEAD = b'{"jsonrpc":"2.0","id":1,"a":[' + b"[]," * 300 + b'"'
CALL = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"does__echo","arguments":{"text":%b},"_meta":%b}}'
)
META = json.dumps(ENVELOPE).encode()


def unterminated(size: int) -> bytes:
    return HEAD + b'\\"' * ((size - len(HEAD)) // 2)


def dense(value: bytes, size: int = LIMIT) -> bytes:
    room = size - len(CALL) - len(META) - 10
    return CALL % (b"[" + value * (room // len(value)) + b"1]", META)


def names(count: int) -> bytes:
    return CALL % (b"{" + b",".join(b'"%d_token_id":1' % number for number in range(count)) + b"}", META)


REFUSED = {
    "a string of 17 KB that does not end": (unterminated(17_000), -32700),
    "a string of 200 KB that does not end": (unterminated(200_000), -32700),
    "a string of 4 MB that does not end": (unterminated(LIMIT), -32700),
    "a million empty arrays": (dense(b"[],"), -32600),
    "half a million objects": (dense(b'{"a":1},'), -32600),
    "a thousand numbers of 4,000 digits": (dense(b"9" * 4_000 + b","), -32600),
    "256 KB of empty arrays": (dense(b"[],", 256_000), -32600),
}
TAKEN = {
    "49,000 objects that the schema does not take": dense(b'{"a":1},', 24_500 * 8 + 1_000),
    "49,000 different names": names(49_000),
    "4 MB of escapes": CALL % (b'"' + b'\\"' * (LIMIT // 2 - 500) + b'"', META),
}
"""Messages within the limits: they get an answer, be it that the arguments break the schema."""


class Gateway:
    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.process = process
        self.port = port

    def post(self, body: bytes) -> Any:
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(
                b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
                b"accept: application/json, text/event-stream\r\nmcp-protocol-version: %b\r\nmcp-method: tools/call\r\n"
                b"mcp-name: does__echo\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
                % (STATELESS.encode(), len(body))
            )
            connection.sendall(body)
            answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
        return json.loads(answer.partition(b"\r\n\r\n")[2])

    def echo(self) -> str:
        found: str = self.post(CALL % (b'"still here"', META))["result"]["structuredContent"]["data"]
        return found


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    arguments = ("serve", "--listen", "127.0.0.1:0", "--json", "--plugin", BEHAVIOURS)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with open_process(arguments, tmp_path_factory.mktemp("gateway"), environment) as process:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        opened = Gateway(process, int(facts["url"].split(":")[2].split("/")[0]))
        # The SDK is loaded in the background, and counts as the loop's time if it is met on the way.
        opened.post(b'{"jsonrpc":"2.0","id":1,"method":"prompts/list","params":{"_meta":%b}}' % META)
        yield opened


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StdioPeer]:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path_factory.mktemp("stdio")) as opened:
        assert opened.call("does__echo", text="hi")
        yield opened


@attack("caller", "sends a body over HTTP that is costly to parse", "it is refused, and others are served meanwhile")
@pytest.mark.parametrize("name", REFUSED)
def test_costly_bodies_over_http(gateway: Gateway, name: str) -> None:
    body, code = REFUSED[name]
    answers: list[Any] = []
    before = loop_cpu_s(gateway.process.pid)
    sender = threading.Thread(target=lambda: answers.append(gateway.post(body)))
    sender.start()
    assert gateway.echo() == "still here"
    sender.join(30)

    assert answers[0]["error"]["code"] == code, answers
    assert loop_cpu_s(gateway.process.pid) - before < LOOP_S * slowness()


@attack("caller", "sends a line on stdio that is costly to parse", "it is refused, and the next call is served")
@pytest.mark.parametrize("name", REFUSED)
def test_costly_lines_on_stdio(peer: StdioPeer, name: str) -> None:
    body, code = REFUSED[name]
    before = loop_cpu_s(peer.process.pid)
    peer.send_raw(body)
    answer = peer.receive()

    assert answer["error"]["code"] == code, answer
    assert peer.call("does__echo", text="still here")["result"]["isError"] is False
    assert loop_cpu_s(peer.process.pid) - before < LOOP_S * slowness()


@attack("caller", "sends as many values and names as a message may hold", "the call is answered, and others meanwhile")
@pytest.mark.parametrize("name", TAKEN)
def test_messages_at_the_limits(gateway: Gateway, name: str) -> None:
    answers: list[Any] = []
    before = loop_cpu_s(gateway.process.pid)
    sender = threading.Thread(target=lambda: answers.append(gateway.post(TAKEN[name])))
    sender.start()
    assert gateway.echo() == "still here"
    sender.join(30)

    assert "result" in answers[0], answers
    assert loop_cpu_s(gateway.process.pid) - before < LOOP_S * slowness()


@attack("caller", "sends 4 MB that are costly to parse while an operator stops the gateway", "SIGTERM still ends it")
def test_a_costly_body_does_not_keep_the_gateway_from_ending(tmp_path: Path) -> None:
    arguments = ("serve", "--listen", "127.0.0.1:0", "--json", "--plugin", BEHAVIOURS)
    with open_process(arguments, tmp_path, os.environ | {"PYTHONPATH": str(ROOT)}) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        gateway = Gateway(process, int(url.split(":")[2].split("/")[0]))
        assert gateway.post(unterminated(LIMIT))["error"]["code"] == -32700
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as connection:
            body = unterminated(LIMIT)
            connection.sendall(
                b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(body), body)
            )
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
