"""Requests of a server to a client: each is answered once, whatever ends first, and none can pile up."""

import asyncio
import json
from typing import Any

import anyio
import msgspec
import pytest

from toolpost.upstreams import server_requests
from toolpost.upstreams.message import IncomingMessage
from toolpost.upstreams.server_requests import ELICITATION, ROOTS, ServerRequests

pytestmark = pytest.mark.anyio


class Channel:
    """A client that never answers."""

    capabilities: dict[str, Any] = {"elicitation": {}, "roots": {}}
    takes_input_required = False
    log_level = None
    can_tell = True
    has_open_request = False

    def __init__(self, client: object = "ann") -> None:
        self.client = client
        self.asked = 0

    def wants_log(self, level: str) -> bool:
        return False

    async def ask(self, method: str, params: bytes, *, key: str | None = None) -> bytes:
        self.asked += 1
        await anyio.sleep_forever()
        raise AssertionError

    def tell(self, method: str, params: bytes) -> None: ...


def request(number: int, method: str = ELICITATION) -> IncomingMessage:
    return IncomingMessage(id=number, method=method, params=msgspec.Raw(b"{}"))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_request_whose_call_ends_in_the_same_turn_is_answered() -> None:
    sent: list[bytes] = []
    requests = ServerRequests("up", sent.append)
    requests.take(request(7), [Channel()], owner="call")
    requests.end("call")
    await settle()

    assert [json.loads(raw)["id"] for raw in sent] == [7]
    assert "has ended" in json.loads(sent[0])["error"]["message"]
    assert len(requests) == 0


async def test_a_request_that_the_server_cancels_is_not_answered() -> None:
    sent: list[bytes] = []
    requests = ServerRequests("up", sent.append)
    requests.take(request(7), [Channel()], owner="call")
    await settle()
    requests.cancel_request(b'{"requestId":7}')
    requests.end("call")
    await settle()

    assert sent == []
    assert len(requests) == 0


async def test_more_open_requests_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_requests, "OPEN_LIMIT", 3)
    sent: list[bytes] = []
    requests, channel = ServerRequests("up", sent.append), Channel()
    for number in range(5):
        requests.take(request(number), [channel], owner="call")
    await settle()

    assert channel.asked == 3
    assert [json.loads(raw)["id"] for raw in sent] == [3, 4]
    requests.end("call")
    await settle()


async def test_clients_whose_roots_were_asked_for_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_requests, "ROOTS_CLIENTS_LIMIT", 2)
    requests = ServerRequests("up", lambda _raw: None)
    channels = [Channel(number) for number in range(3)]
    for number, channel in enumerate(channels):
        requests.take(request(number, ROOTS), [channel], owner=number)
    await settle()
    for number in range(3):
        requests.end(number)
    await settle()

    assert [requests.allow_roots_requests(channel) for channel in channels] == [False, True, True]
