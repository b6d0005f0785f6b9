"""Events of the SDK's streams can be replayed, and a session holds few of them, however large they are."""

import mcp_types
import pytest
from mcp.server.streamable_http import EventMessage

from tests.hostile.attacks import attack
from toolpost.endpoints.sdk.server import EVENTS_BYTES, EVENTS_KEPT, RecentEvents

pytestmark = pytest.mark.anyio


def answer(number: int, text: str = "") -> mcp_types.JSONRPCMessage:
    return mcp_types.JSONRPCResponse(jsonrpc="2.0", id=number, result={"text": text, "_meta": {"a": 1}})


async def replay(events: RecentEvents, last: str) -> list[mcp_types.JSONRPCMessage] | None:
    """Return what came after an event; None if that is no longer known."""
    seen: list[mcp_types.JSONRPCMessage] = []

    async def send(event: EventMessage) -> None:
        seen.append(event.message)

    return None if await events.replay_events_after(last, send) is None else seen


async def test_what_came_after_an_event_of_a_stream_is_replayed() -> None:
    events = RecentEvents()
    first = await events.store_event("s", None)
    await events.store_event("s", answer(1))
    await events.store_event("other", answer(2))
    last = await events.store_event("s", answer(3, "ä"))

    assert await replay(events, first) == [answer(1), answer(3, "ä")]
    assert await replay(events, last) == []
    assert await replay(events, "unknown") is None


@attack(
    "caller",
    "opens sessions, reads large resources in each, and leaves them open",
    "a session holds 64 KiB of answers for a client that lost its connection; a larger one is not held at all",
)
async def test_a_session_holds_a_bounded_number_of_bytes() -> None:
    events = RecentEvents()
    ids = [await events.store_event("s", answer(number, "x" * 10_000)) for number in range(EVENTS_KEPT)]
    kept = [number for number, event_id in enumerate(ids) if await replay(events, event_id) is not None]

    assert kept == list(range(EVENTS_KEPT - len(kept), EVENTS_KEPT))
    assert EVENTS_BYTES - 12_000 < len(kept) * 10_000 <= EVENTS_BYTES
    # Nothing follows an event any more if what followed was too large: a stream without its answer would look complete.
    large = await events.store_event("s", answer(0, "x" * EVENTS_BYTES))
    assert [await replay(events, event_id) for event_id in (ids[-1], large)] == [None, None]


async def test_a_session_holds_a_bounded_number_of_events() -> None:
    events = RecentEvents()
    ids = [await events.store_event("s", answer(number)) for number in range(EVENTS_KEPT + 5)]

    assert [await replay(events, event_id) is None for event_id in ids] == [True] * 5 + [False] * EVENTS_KEPT
