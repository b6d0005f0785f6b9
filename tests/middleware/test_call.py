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


def count_calls() -> int:
    return sum(isinstance(each, Call | Context) for each in gc.get_objects())


@pytest.mark.parametrize("tool", ["does__echo", "up__echo"])
@pytest.mark.usefixtures("uncollected")
async def test_a_call_that_has_ended_is_freed_at_once(tool: str) -> None:
    # Other tests of this process may have left some, as of a call that was never run.
    before = count_calls()
    async with gateway(hostile(), plugins=[plugin_of(BEHAVIOURS)]) as (app, client):
        for _ in range(5):
            assert not (await client.call_tool(tool, {"text": "x"})).is_error
        assert app.gateway.admitted == 5
        # Of the last one, a task may still be about to end.
        assert count_calls() <= before + 2
