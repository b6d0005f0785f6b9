"""A client of the conversations API of a gateway."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import msgspec

from toolpost import ToolpostError, UpstreamUnavailable
from toolpost.base import JsonObject
from toolpost.parts.agents.turn_events import TurnEnded, TurnEvent
from toolpost.terminal import RunningGateway

SILENT_S: Final = 60.0
"""Time limit without data, in seconds; a stream sends a comment every 15 s."""

_read_event: Final = msgspec.json.Decoder(TurnEvent).decode


@dataclass(frozen=True, kw_only=True)
class ChatClient:
    """Sends requests to `/api` of a running gateway; errors of the API are raised as `ToolpostError`."""

    gateway: RunningGateway

    def list_agents(self) -> list[JsonObject]:
        return list(self.gateway.ask("GET", "/api/agents")["agents"])

    def list_threads(self, limit: int = 20) -> list[JsonObject]:
        """Return the caller's threads, the last changed first."""
        return list(self.gateway.ask("GET", f"/api/threads?limit={limit}")["threads"])

    def find_thread(self, thread: str) -> JsonObject:
        return self.gateway.ask("GET", _path(thread))

    def create_thread(self, agent: str | None = None) -> JsonObject:
        return self.gateway.ask("POST", "/api/threads", {"agent": agent})

    def delete_thread(self, thread: str) -> None:
        self.gateway.ask("DELETE", _path(thread))

    def list_messages(self, thread: str, after: int = 0) -> list[JsonObject]:
        """Return the first 200 messages of a thread past a `seq`."""
        return list(self.gateway.ask("GET", f"{_path(thread)}/messages?after={after}&limit=200")["messages"])

    def prewarm(self, thread: str) -> None:
        """Have the agent's session opened while the user types, without waiting for it."""

        def send() -> None:
            # The same error comes back when a message is sent.
            with suppress(ToolpostError):
                self.gateway.ask("POST", "/api/prewarm", {"threadId": thread}, limit_s=SILENT_S)

        threading.Thread(target=send, daemon=True).start()

    def send_message(self, thread: str, text: str, agent: str | None = None) -> Iterator[TurnEvent]:
        """Send a message and yield the events of its turn, `TurnEnded` last; raises `UpstreamUnavailable` if it is missing."""
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
        raise UpstreamUnavailable(
            "the gateway closed the connection before the answer ended", hint="the thread is kept: resume it"
        )

    def cancel(self, thread: str, turn: str | None) -> None:
        """Cancel a turn, or all of a thread, without waiting: this is called in a signal handler."""

        def send() -> None:
            # The end of the turn shows whether it worked.
            with suppress(ToolpostError):
                self.gateway.ask("POST", f"{_path(thread)}/cancel", {"turn": turn})

        threading.Thread(target=send, daemon=True).start()


def _path(thread: str) -> str:
    return f"/api/threads/{quote(thread, safe='')}"
