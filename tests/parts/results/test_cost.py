"""What limits cost: nothing without them, next to nothing for small results, and constant memory for large ones."""

import gc
import sys
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio import to_thread

from tests.docs.test_call_path import served, traced
from tests.endpoints.tasks.asking import HttpPeer
from tests.parts.results.conftest import limited, open_limited
from tests.parts.results.test_wire import large
from tests.upstreams.behind import hostile
from tests.ways import BEHAVIOURS, ENVELOPE, IN_MEMORY, STATELESS, plugin_of
from toolpost import Plugin
from toolpost.app import open_http
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.contracts.digest import digest_of_bytes
from toolpost.middleware import CheckedResult
from toolpost.parts import ResultLimiter
from toolpost.settings import Config

pytestmark = pytest.mark.anyio

CALLER = Caller(id=CallerId("ada"), transport="memory")
MB = 1_000_000


@pytest.mark.wire
@pytest.mark.parametrize("tool", ["up__echo", "does__echo"])
async def test_a_small_result_passes_the_same_files_with_limits_and_without(tool: str) -> None:
    async def path(config: Config) -> set[str]:
        async with served(hostile(version=STATELESS), config=config) as url:
            # As in `test_call_path`: the shortest of some is the path.
            return min([await traced(url, tool) for _ in range(5)], key=len)

    without, limits = await path(IN_MEMORY), await path(limited(limit_bytes=10_000))

    assert limits == without
    assert not any(name.startswith("parts/results") for name in limits)
    assert ("middleware/fast_path.py" in limits) == (tool == "up__echo")


async def test_without_limits_nothing_of_the_part_is_loaded() -> None:
    async with open_limited(IN_MEMORY, plugin_of(BEHAVIOURS)) as app:
        assert app.contributions.first(ResultLimiter) is None
        assert "results__read" not in {tool.contract.name for tool in app.gateway.catalog}
        assert app.gateway.pipeline._fast_path.small_bytes == sys.maxsize


def plugin_with(value: Any) -> Plugin:
    plugin = Plugin("made")

    @plugin.tool(style="plain", output_schema=None)
    async def large() -> Any:
        """Return it."""
        return value

    return plugin


@pytest.mark.parametrize("kind", ["text", "rows", "blocks"])
async def test_making_a_result_smaller_takes_little_memory_beside_it(kind: str, tmp_path: Path) -> None:
    """Of 6 MB that are there, less than 3 MB are copied at any time: the chunks of one transaction, and the answer."""
    await _measure(kind, 6 * MB, f"sqlite:{tmp_path / 'store.db'}", allowed=3 * MB)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["text", "rows", "blocks"])
async def test_fifty_megabytes_take_as_little(kind: str, url: str) -> None:
    await _measure(kind, 50 * MB, url, allowed=3 * MB)


async def _measure(kind: str, size: int, url: str, *, allowed: int) -> None:
    item = {
        "text": b"line of text\\n",
        "rows": b'{"id":1,"name":"some name of a row"}',
        "blocks": b'{"type":"text","text":"abc"}',
    }
    count = size // (len(item[kind]) + 1)
    many = b",".join([item[kind]] * count) if kind != "text" else item[kind] * count
    data = {"text": b'"%b"', "rows": b'{"rows":[%b],"total":1}', "blocks": b'{"content":[%b]}'}[kind] % many
    del many
    fields = {"content": msgspec.Raw(memoryview(data)[11:-1])} if kind == "blocks" else None
    result = CheckedResult(data, upstream_fields=fields)
    config = limited(url=url, limit_bytes=100_000, keep_mb=1000)
    async with open_limited(config, plugin_with({"a": 1})) as app:
        limiter = app.contributions.first(ResultLimiter)
        assert limiter is not None
        admitted = app.gateway.admit(caller=CALLER, name="made__large", arguments={})
        await limiter.limit(admitted, CheckedResult(b'"%b"' % (b"x" * 200_000)))
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        short = await limiter.limit(admitted, result)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        assert short is not result
        assert len(short.encoded) < 110_000
        assert short.facts is not None
        assert short.facts["truncated"]["digest"] == digest_of_bytes(data)
    print(f"{kind} of {len(data)} bytes: {peak} bytes beside it")
    assert peak < allowed


@pytest.mark.soak
@pytest.mark.wire
@pytest.mark.parametrize(("tool", "size"), [("up__echo", 15 * MB), ("made__large", 50 * MB)])
async def test_a_large_result_takes_less_memory_than_sending_it(tool: str, size: int, tmp_path: Path) -> None:
    """The whole call, from the server's line or the function's value to the answer over HTTP."""
    peaks = {}
    for limit in (None, 100_000):
        config = IN_MEMORY if limit is None else limited(url=f"sqlite:{tmp_path / 'store.db'}", limit_bytes=limit)
        made = plugin_with("line of text\n" * (size // 13))
        async with open_limited(config, made, servers=[large()]) as app, open_http(app) as url:
            peer = HttpPeer(url)
            arguments = {"size": size // 14} if tool == "up__echo" else {}
            ask = partial(peer.ask, "tools/call", {"name": tool, "arguments": arguments}, meta=ENVELOPE)
            await to_thread.run_sync(ask)
            gc.collect()
            tracemalloc.start()
            await to_thread.run_sync(ask)
            peaks[limit] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    print(f"{tool}: {peaks}")
    assert peaks[100_000] < peaks[None]
