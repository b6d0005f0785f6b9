"""Many servers, many tools: what ten servers take in memory, and that a call is the same among ten thousand tools."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest

from tests.upstreams.behind import gateway, text_of
from tests.waiting import until
from tests.ways import ROOT, StdioPeer, stdio_peer
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

UPSTREAM = ROOT / "bench" / "servers" / "upstream.py"
OURS = str(ROOT / "src" / "toolpost")
MEMORY_LIMIT_MIB = 100


class Steps:
    """How many functions of ours were called."""

    count = 0


@contextmanager
def steps_counted() -> Iterator[Steps]:
    steps = Steps()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            steps.count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield steps
    finally:
        sys.setprofile(before)


async def steps_of_a_call(tools: int) -> int:
    spec = ServerSpec(name="up", command=(sys.executable, str(UPSTREAM), "stdio", str(tools)))
    async with gateway(spec) as (app, client):
        await until(lambda: len(app.gateway.catalog) == tools, limit_s=100)
        await client.list_tools()
        fewest = sys.maxsize
        for number in range(40):
            with steps_counted() as steps:
                answer = await client.call_tool("up__echo", {"text": f"call {number}"})
            assert text_of(answer) == f"call {number}"
            # A timer of ours may run in between, or a thread take the interpreter for a while; the least is the call alone.
            fewest = min(fewest, steps.count)
    return fewest


@pytest.mark.soak
async def test_a_call_takes_as_many_steps_among_ten_tools_as_among_ten_thousand() -> None:
    among_few = await steps_of_a_call(10)
    among_many = await steps_of_a_call(10_000)

    assert among_few > 20, "the steps were not counted"
    # Timers and threads take a few steps in between; what grew with the tools would be thousands.
    assert among_many <= among_few * 1.2, (among_many, among_few)


def echoed(peer: StdioPeer, number: int, name: str) -> str:
    """Call a server's echo after a handshake, whatever else is said meanwhile."""
    params = {"name": f"{name}__echo", "arguments": {"text": name}}
    peer.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    while (message := peer.receive()).get("id") != number:
        pass
    return str(message["result"]["content"][0]["text"])


@pytest.mark.soak
def test_ten_connected_servers_take_less_than_100_mib(tmp_path: Path) -> None:
    names = [f"up{number}" for number in range(10)]
    server = f'command = "{sys.executable}"\nargs = ["{UPSTREAM}", "stdio"]\n'
    (tmp_path / "toolpost.toml").write_text("".join(f"[servers.{name}]\n{server}" for name in names))

    with stdio_peer(cwd=tmp_path) as peer:
        peer.shake_hands()  # loads the SDK, which is most of what there is
        for number, name in enumerate(names * 20):
            assert echoed(peer, number, name) == name
        process = psutil.Process(peer.process.pid)
        commands = [" ".join(child.cmdline()) for child in process.children(recursive=True)]
        memory_mib = process.memory_info().rss / 2**20

    assert sum(str(UPSTREAM) in command and "reaper" not in command for command in commands) >= 10
    assert memory_mib < MEMORY_LIMIT_MIB
