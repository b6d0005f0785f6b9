"""Progress is shaped: at most four a second, rising, the last one delivered, none after the end."""

import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest

from tests.plugins import behaviours
from tests.upstreams.behind import HOSTILE
from tests.waiting import until
from tests.ways import BEHAVIOURS, ENVELOPE, IN_MEMORY, QUICK_WAYS, WAYS, StdioPeer, Way, stdio_peer
from toolpost.app import open_app
from toolpost.base.caller import Caller
from toolpost.base.ids import META_KEY, CallerId
from toolpost.endpoints.duplex import ClientConnection
from toolpost.middleware import progress
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

Seen = list[tuple[float, float, float | None, str | None]]


def recorder(seen: Seen) -> Any:
    async def record(progress: float, total: float | None, message: str | None) -> None:
        seen.append((time.monotonic(), progress, total, message))

    return record


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_flood_becomes_a_trickle(way: Way) -> None:
    seen: Seen = []
    async with way.client(BEHAVIOURS) as client:
        began = anyio.current_time()
        answer = await client.call_tool(
            "does__chatter", {"count": 300, "pause": 0.005}, progress_callback=recorder(seen)
        )
        took_s = anyio.current_time() - began
        # The official client starts a task for each: that of the last one may come after the answer.
        await until(lambda: seen[-1][1] == 300)

    assert data_of(answer) == 300
    # At most four a second. Counted over the whole call: on a busy machine some arrive together that were sent apart.
    assert 2 <= len(seen) <= 4 * took_s + 4
    values = [progress for _, progress, _, _ in seen]
    assert values == sorted(set(values))
    assert seen[-1][1:] == (300, 300, "step 300")


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_progress_comes_from_threads_too(way: Way) -> None:
    seen: Seen = []
    async with way.client(BEHAVIOURS) as client:
        await client.call_tool("does__chatter_in_thread", {"count": 20}, progress_callback=recorder(seen))
        await until(lambda: seen[-1][1] == 20)

    assert seen[0][1] >= 1
    assert seen[-1][1:] == (20, 20, "step 20")


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_no_progress_after_the_answer(way: Way) -> None:
    seen: Seen = []
    async with way.client(BEHAVIOURS) as client:
        await client.call_tool("does__late_progress", {}, progress_callback=recorder(seen))
        await until(lambda: "nagged" in behaviours.STARTED)
        await client.call_tool("does__echo", {"text": "after it"})

    assert behaviours.STARTED == ["nag", "nagged"]
    assert seen == []


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_the_output_of_a_command_is_progress(way: Way) -> None:
    seen: Seen = []
    script = "import time\nfor i in range(4):\n print('line', i, flush=True); time.sleep(0.2)"
    async with way.client(BEHAVIOURS) as client:
        answer = await client.call_tool(
            "does__run", {"command": ["python3", "-c", script]}, progress_callback=recorder(seen)
        )
        failed = await client.call_tool(
            "does__run", {"command": ["python3", "-c", "import sys; print('out'); sys.exit('why')"]}
        )
        absent = await client.call_tool("does__run", {"command": ["no-such-command-anywhere"]})

    assert data_of(answer) == "line 0\nline 1\nline 2\nline 3\n"
    assert seen[0][3] == "line 0"
    assert seen[-1][3] == "line 3"
    values = [progress for _, progress, _, _ in seen]
    assert values == sorted(set(values))
    error = error_of(failed)
    assert (error["code"], error["stdout"], error["stderr"]) == ("HANDLER_ERROR", "out\n", "why\n")
    assert error["details"]["exitCode"] == 1
    assert error_of(absent)["code"] == "CAPABILITY_MISSING"


def messages_until_answer(peer: StdioPeer, request_id: str) -> list[Any]:
    """Return everything on the wire up to an answer: the official client hides what comes at the wrong time."""
    messages = [peer.receive()]
    while messages[-1].get("id") != request_id:
        messages.append(peer.receive())
    return messages


def start(peer: StdioPeer, tool: str, **arguments: Any) -> None:
    params = {"name": f"does__{tool}", "arguments": arguments}
    peer.start("tools/call", params, id="a", meta={"progressToken": "tok"})


@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_three_reports_of_a_short_call_all_arrive(pause: float, tmp_path: Any) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        start(peer, "chatter", count=3, pause=pause)
        messages = messages_until_answer(peer, "a")

    assert [m["params"]["progress"] for m in messages[:-1]] == [1, 2, 3]


def test_three_reports_of_a_server_all_arrive(tmp_path: Any) -> None:
    settings = f"[servers.up]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps([str(HOSTILE)])}\n"
    (tmp_path / "toolpost.toml").write_text(settings)
    with stdio_peer(cwd=tmp_path) as peer:
        params = {"name": "up__flood", "arguments": {"count": 3}}
        peer.start("tools/call", params, id="a", meta={"progressToken": "tok"})
        messages = messages_until_answer(peer, "a")

    assert [m["params"]["progress"] for m in messages[:-1]] == [1, 2, 3]


@pytest.mark.parametrize("count", [1, 300])
async def test_on_a_pipe_the_answer_keeps_a_distance_from_the_last_report(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for another call to be answered in between, on a busy machine too.
    monkeypatch.setattr(progress, "READ_S", 2.0)
    seen: list[Any] = []

    async def messages() -> AsyncIterator[bytes]:
        for number, meta in (("told", {"progressToken": "tok"}), ("plain", {})):
            params = {"name": "does__chatter", "arguments": {"count": count}, "_meta": ENVELOPE | meta}
            yield msgspec.json.encode({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        await until(lambda: "told" in seen)

    def send(raw: bytes) -> None:
        message = msgspec.json.decode(raw)
        seen.append(message["id"] if "id" in message else message["params"]["progress"])

    async with open_app(IN_MEMORY, plugins=[behaviours.plugin], bundled=False) as app:
        caller = Caller(id=CallerId("local"), transport="stdio")
        await ClientConnection(app.call_handler, app.sdk, caller=caller, send=send).serve(messages(), grace_s=5)

    assert seen[-1] == "told"
    assert set(seen[:-1]) == ({1, "plain"} if count == 1 else {1, 2, 3, 300, "plain"})


def test_no_progress_is_written_after_the_answer(tmp_path: Any) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        start(peer, "late_progress")
        messages_until_answer(peer, "a")
        peer.start("tools/call", {"name": "does__sleep", "arguments": {"seconds": 0.5}}, id="b")
        following = messages_until_answer(peer, "b")

    assert len(following) == 1


@pytest.mark.parametrize("method", ["$/cancelRequest", "notifications/cancelled"])
def test_no_progress_is_written_after_a_cancellation(method: str, tmp_path: Any) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        start(peer, "clean_up")
        assert peer.receive()["method"] == "notifications/progress"
        peer.send({"jsonrpc": "2.0", "method": method, "params": {"id": "a", "requestId": "a"}})
        # Answered after the cancellation was taken: what was on its way before it has been read by then.
        peer.start("tools/call", {"name": "does__echo", "arguments": {"text": "x"}}, id="b")
        messages_until_answer(peer, "b")
        peer.start("tools/call", {"name": "does__sleep", "arguments": {"seconds": 1.5}}, id="c")
        following = messages_until_answer(peer, "c")

    assert [m for m in following if m.get("method") == "notifications/progress"] == []
    assert [m["id"] for m in following] == (["a", "c"] if method == "$/cancelRequest" else ["c"])


def test_progress_carries_its_facts(tmp_path: Any) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        params = {"name": "does__chatter", "arguments": {"count": 1, "pause": 0.1}}
        peer.start("tools/call", params, id="a", meta={"progressToken": "tok"})
        note = peer.receive()
        answer = peer.receive()

    facts = note["params"]["_meta"][META_KEY]
    assert note["method"] == "notifications/progress"
    assert note["params"]["progressToken"] == "tok"
    assert set(facts) == {"id", "tool", "stream", "phase", "ts"}
    assert (facts["tool"], facts["stream"], facts["phase"]) == ("does__chatter", "info", "count")
    assert facts["id"] == answer["result"]["_meta"][META_KEY]["callId"]
