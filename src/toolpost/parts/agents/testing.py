"""Agents for tests: one in this process, scripted by a function, and one that is a real program."""

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from toolpost.parts.agents.agent import AgentGone, SessionOptions
from toolpost.parts.agents.ids import AgentSessionId
from toolpost.parts.agents.turn_events import AgentEnd, AgentEvent, TextChunk

Script = Callable[[str, "ScriptedSession"], AsyncGenerator[AgentEvent, None]]
"""Answers a prompt with events; `AgentEnd` is added if it is missing."""

ACP_AGENT = Path(__file__).with_name("trial_agent.py")


def acp_agent_command(*options: str) -> tuple[str, ...]:
    """Return the command of an agent that implements the Agent Client Protocol and does what each prompt says.

    `trial_agent.py` lists the prompts and options that it knows.
    """
    return (sys.executable, "-S", "-E", str(ACP_AGENT), *options)


async def echo(prompt: str, session: "ScriptedSession") -> AsyncGenerator[AgentEvent, None]:  # noqa: ARG001 (a script)
    """Answer with the prompt."""
    yield TextChunk(text=prompt)


class ScriptedSession:
    """A session that answers each prompt from a script; `session_options` has what it was opened with."""

    def __init__(self, script: Script, session_options: SessionOptions, *, number: int, is_resumed: bool) -> None:
        self.session_options = session_options
        self.number = number
        """Counts the sessions of an agent, from 1."""
        self.is_resumed = is_resumed
        self.prompts: list[str] = []
        self.id: AgentSessionId | None = session_options.resume if is_resumed else AgentSessionId(f"scripted-{number}")
        self.cancelled = anyio.Event()
        self.is_closed = False
        self._script = script

    async def prompt(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        """Run the script; an `AgentEnd` is added if it yields none."""
        if self.is_closed:
            raise AgentGone
        self.cancelled = anyio.Event()
        self.prompts.append(text)
        has_ended = False
        async for event in self._script(text, self):
            has_ended = isinstance(event, AgentEnd)
            yield event
        if not has_ended:
            yield AgentEnd(reason="cancelled" if self.cancelled.is_set() else "done")

    async def cancel(self) -> None:
        """Set `cancelled`, for the script to stop."""
        self.cancelled.set()

    async def ping(self) -> None:
        """Raise `AgentGone` if closed."""
        if self.is_closed:
            raise AgentGone


class ScriptedAgent:
    """An agent in this process; `sessions` has every session that was opened."""

    def __init__(self, script: Script = echo, *, can_resume: bool = False, open_s: float = 0.0) -> None:
        self.script = script
        self.can_resume = can_resume
        self.open_s = open_s
        self.sessions: list[ScriptedSession] = []

    @property
    def prompts(self) -> list[str]:
        """All prompts, session by session."""
        return [prompt for session in self.sessions for prompt in session.prompts]

    @asynccontextmanager
    async def open(self, session_options: SessionOptions) -> AsyncIterator[ScriptedSession]:
        await anyio.sleep(self.open_s)
        known = {session.id for session in self.sessions}
        is_resumed = self.can_resume and session_options.resume is not None and session_options.resume in known
        session = ScriptedSession(self.script, session_options, number=len(self.sessions) + 1, is_resumed=is_resumed)
        if not self.can_resume:
            session.id = None
        self.sessions.append(session)
        try:
            yield session
        finally:
            session.is_closed = True
