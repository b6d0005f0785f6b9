"""Progress is shaped: at most four a second, rising, the last one delivered, none after the end."""

import time
from typing import Any

import anyio
import pytest

from tests.plugins import behaviours
from tests.ways import BEHAVIOURS, QUICK_WAYS, WAYS, Way, stdio_peer
from toolpost.contracts.ids import META_KEY
from toolpost.testing import data_of, error_of

pytestmark = pytest.mark.anyio

Seen = list[tuple[float, float, float | None, str | None]]


def recorder(seen: Seen) -> Any:
    async def record(progress: float, total: float | None, message: str | None) -> None:
        seen.append((time.monotonic(), progress, total, message))

    return record


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_flood_becomes_a_trickle(way: Way) -> None:
    seen: Seen = []
    async with way.client(BEHAVIOURS) as client:
        answer = await client.call_tool(
            "does__chatter", {"count": 300, "pause": 0.005}, progress_callback=recorder(seen)
        )
        count_at_answer = len(seen)
        await anyio.sleep(0.5)

    assert data_of(answer) == 300
    assert 3 <= len(seen) <= 12
    assert len(seen) == count_at_answer, "progress came after the answer"
    values = [progress for _, progress, _, _ in seen]
    assert values == sorted(set(values))
    assert seen[-1][1:] == (300, 300, "step 300")
    for at, *_ in seen:
        assert sum(1 for other, *_ in seen if at <= other < at + 0.95) <= 4


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_progress_comes_from_threads_too(way: Way) -> None:
    seen: Seen = []
    async with way.client(BEHAVIOURS) as client:
        await client.call_tool("does__chatter_in_thread", {"count": 20}, progress_callback=recorder(seen))

    assert seen[0][1] == 1
    assert seen[-1][1:] == (20, 20, "step 20")


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_no_progress_after_the_answer(way: Way) -> None:
    seen: Seen = []
    async with way.client(BEHAVIOURS) as client:
        await client.call_tool("does__late_progress", {}, progress_callback=recorder(seen))
        await anyio.sleep(0.4)

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


def test_progress_carries_its_facts(tmp_path: Any) -> None:
    with stdio_peer(BEHAVIOURS, cwd=tmp_path) as peer:
        params = {"name": "does__chatter", "arguments": {"count": 1}}
        peer.start("tools/call", params, id="a", meta={"progressToken": "tok"})
        note = peer.receive()
        answer = peer.receive()

    facts = note["params"]["_meta"][META_KEY]
    assert note["method"] == "notifications/progress"
    assert note["params"]["progressToken"] == "tok"
    assert set(facts) == {"id", "tool", "stream", "phase", "ts"}
    assert (facts["tool"], facts["stream"], facts["phase"]) == ("does__chatter", "info", "count")
    assert facts["id"] == answer["result"]["_meta"][META_KEY]["callId"]
