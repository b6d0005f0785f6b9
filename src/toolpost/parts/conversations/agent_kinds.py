"""Kinds of agents, loaded when one of them is first opened: what speaks to them takes a second to load."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import to_thread

from toolpost.contracts.errors import CapabilityMissing
from toolpost.parts.conversations.agent import Agent, AgentSession, AgentSpec, SessionOrder


class LazyAgent:
    """An agent of a kind that is not loaded yet."""

    def __init__(self, spec: AgentSpec) -> None:
        self._spec = spec
        self._agent: Agent | None = None

    async def load(self) -> Agent:
        """Load it, if it is not yet."""
        if self._agent is None:
            self._agent = await to_thread.run_sync(_loaded, self._spec)
        return self._agent

    @asynccontextmanager
    async def open(self, order: SessionOrder) -> AsyncIterator[AgentSession]:
        """Open a session."""
        async with (await self.load()).open(order) as session:
            yield session


def _loaded(spec: AgentSpec) -> Agent:
    if spec.problem is not None:
        raise CapabilityMissing(spec.problem, hint=spec.hint)
    try:
        if spec.kind == "claude":
            from toolpost.parts.conversations.claude_agent import ClaudeAgent

            return ClaudeAgent(spec)
        from toolpost.parts.conversations.acp_agent import AcpAgent

        return AcpAgent(spec)
    except ModuleNotFoundError as error:
        if error.name not in ("acp", "claude_agent_sdk"):
            raise
        raise CapabilityMissing(
            f"agents of the kind `{spec.kind}` need the package {error.name}, which is not installed",
            hint="pip install 'toolpost[harness]'",
        ) from error
