"""What a call leaves behind: nothing that waits for Python's garbage collector."""

import gc
from collections.abc import Iterator

import pytest

from tests.upstreams.behind import gateway, hostile
from tests.ways import BEHAVIOURS, plugin_of
from toolpost.authoring.context import Context
from toolpost.middleware import Call

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Nothing is collected: objects go by their reference counts, or stay."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("tool", ["does__echo", "up__echo"])
@pytest.mark.usefixtures("uncollected")
async def test_a_call_that_has_ended_is_freed_at_once(tool: str) -> None:
    async with gateway(hostile(), plugins=[plugin_of(BEHAVIOURS)]) as (app, client):
        for _ in range(5):
            assert not (await client.call_tool(tool, {"text": "x"})).is_error
        # Of the last one, a task may still be about to end.
        assert app.gateway.admitted == 5
        left = [each for each in gc.get_objects() if isinstance(each, Call | Context)]
    assert len(left) <= 2
