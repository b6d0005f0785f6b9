"""Conversations at a gateway, as a command asks for them over HTTP: threads, messages, and a turn as it happens."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import msgspec

from toolpost.base.ids import JsonObject
from toolpost.base.turns import TurnEnded, TurnEvent
from toolpost.cli.servers.client import RunningGateway
from toolpost.contracts.errors import ToolpostError, UpstreamUnavailable

SILENT_S: Final = 60.0
"""A stream says something every few seconds, if only that it is still there."""

_read_event: Final = msgspec.json.Decoder(TurnEvent).decode


@dataclass(frozen=True, kw_only=True)
class ChatClient:
    """Whoever leads conversations."""

    gateway: RunningGateway

    def agents(self) -> list[JsonObject]:
        """Return everybody who answers."""
        return list(self.gateway.ask("GET", "/api/agents")["agents"])

    def threads(self, limit: int = 20) -> list[JsonObject]:
        """Return the latest conversations, those that changed last first."""
        return list(self.gateway.ask("GET", f"/api/threads?limit={limit}")["threads"])

    def thread(self, thread: str) -> JsonObject:
        """Return one."""
        return self.gateway.ask("GET", _path(thread))

    def create(self, agent: str | None = None) -> JsonObject:
        """Begin one."""
        return self.gateway.ask("POST", "/api/threads", {"agent": agent})

    def delete(self, thread: str) -> None:
        """Forget one."""
        self.gateway.ask("DELETE", _path(thread))

    def messages(self, thread: str, after: int = 0) -> list[JsonObject]:
        """Return what was said in one, past a number."""
        return list(self.gateway.ask("GET", f"{_path(thread)}/messages?after={after}&limit=200")["messages"])

    def prewarm(self, thread: str) -> None:
        """Have the agent ready while the person still types; nobody waits for it."""

        def ask() -> None:
            # What is wrong is said when a message is sent.
            with suppress(ToolpostError):
                self.gateway.ask("POST", "/api/prewarm", {"threadId": thread}, limit_s=SILENT_S)

        threading.Thread(target=ask, daemon=True).start()

    def say(self, thread: str, text: str, agent: str | None = None) -> Iterator[TurnEvent]:
        """Say something, and hear what happens until the turn has ended."""
        body: JsonObject = {"text": text, "agent": agent}
        path, accept = f"{_path(thread)}/messages", "text/event-stream"
        with self.gateway.open_response("POST", path, body, accept=accept, limit_s=SILENT_S) as answer:
            for line in answer:
                if not line.startswith(b"data:"):
                    continue
                event = _read_event(line[5:])
                yield event
                if isinstance(event, TurnEnded):
                    return
        raise UpstreamUnavailable("the gateway ended in the middle of the answer", hint="the thread is kept: resume it")

    def cancel(self, thread: str, turn: str | None) -> None:
        """Have a turn stop, or all of a thread, without waiting for it: this is called by a signal."""

        def ask() -> None:
            # Whether it has worked is seen by the turn that ends.
            with suppress(ToolpostError):
                self.gateway.ask("POST", f"{_path(thread)}/cancel", {"turn": turn})

        threading.Thread(target=ask, daemon=True).start()


def _path(thread: str) -> str:
    return f"/api/threads/{quote(thread, safe='')}"
