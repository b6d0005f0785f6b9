"""Who asks in these tests, and how."""

from typing import Any

import anyio
import pytest

from toolpost import Context, Plugin
from toolpost.app import App
from toolpost.base.caller import Caller, Principal
from toolpost.base.ids import CallerId, ThreadId
from toolpost.parts.agents import InvokeOptions, SessionReady, TurnEnded, TurnEvent, conversations
from toolpost.parts.agents.conversations import ConversationLimits
from toolpost.parts.agents.turn import LiveTurn
from toolpost.testing import conversations_of

desk = Plugin("desk")


@desk.tool
async def whoami(ctx: Context) -> dict[str, str | None]:
    """Say who calls."""
    return {"caller": ctx.caller.id, "thread": ctx.caller.thread, "trace": ctx.trace_id}


@desk.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@desk.tool
async def fail(reason: str = "no luck") -> str:
    """Fail."""
    raise ValueError(reason)


ADA = Principal(caller=Caller(id=CallerId("local"), transport="http"))
BOB = Principal(caller=Caller(id=CallerId("bob"), transport="http"))


def limit(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    """Have gateways that are opened from now on use other limits of conversations than their own."""
    monkeypatch.setattr(conversations, "ConversationLimits", lambda **usual: ConversationLimits(**usual | limits))


async def at_work(
    app: App, thread: ThreadId, text: str, *, until: type[TurnEvent] = SessionReady, **options: Any
) -> LiveTurn:
    """Ask, and return as soon as the agent is at it: when this kind of event has come."""
    is_asked = anyio.Event()
    run = await conversations_of(app).start_message(
        ADA,
        thread,
        text,
        InvokeOptions(on_event=lambda e: is_asked.set() if isinstance(e, until) else None, **options),
    )
    await is_asked.wait()
    await anyio.sleep(0.1)
    return run


async def asked(app: App, thread: ThreadId, text: str, **options: Any) -> TurnEnded:
    return await conversations_of(app).handle_message(ADA, thread, text, InvokeOptions(**options))
