"""The configured agents by name, and the session that each message belongs to.

The modules of agents are imported when a session is first opened: their SDKs take a second to import.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass

from anyio import to_thread

from toolpost import Caller, CapabilityMissing, Principal
from toolpost.base import Scope, nearest_name
from toolpost.contracts import InvalidRequest
from toolpost.parts import GatewayAccess
from toolpost.parts.agents.agent import Agent, AgentSession, AgentSpec, SessionOptions
from toolpost.parts.agents.ids import AgentSessionId
from toolpost.parts.agents.session_key import PoolKey, Profile, pool_key, profile_of
from toolpost.parts.agents.session_pool import OnGone, OpenedSession, SessionOpener
from toolpost.parts.agents.threads import Thread, Threads
from toolpost.parts.agents.values import InvokeOptions

TokenFor = Callable[[Caller, Sequence[Scope]], AbstractContextManager[GatewayAccess | None]]
"""Lends a token of the gateway, as `Host.token_for` does."""


class LazyAgent:
    """A configured agent whose module is imported when it is first used."""

    def __init__(self, spec: AgentSpec) -> None:
        self._spec = spec
        self._agent: Agent | None = None

    async def load(self) -> Agent:
        """Import the agent's module in a thread; raises `CapabilityMissing` if its package is not installed."""
        if self._agent is None:
            self._agent = await to_thread.run_sync(_make_agent, self._spec)
        return self._agent

    @asynccontextmanager
    async def open(self, session_options: SessionOptions) -> AsyncIterator[AgentSession]:
        async with (await self.load()).open(session_options) as session:
            yield session


def _make_agent(spec: AgentSpec) -> Agent:
    if spec.problem is not None:
        raise CapabilityMissing(spec.problem, hint=spec.hint)
    try:
        if spec.kind == "claude":
            from toolpost.parts.agents.claude_agent import ClaudeAgent

            return ClaudeAgent(spec)
        from toolpost.parts.agents.acp_agent import AcpAgent

        return AcpAgent(spec)
    except ModuleNotFoundError as error:
        if error.name not in ("acp", "claude_agent_sdk"):
            raise
        raise CapabilityMissing(
            f"agents of the kind `{spec.kind}` need the package {error.name}, which is not installed",
            hint="pip install 'toolpost[agents]'",
        ) from error


@dataclass(frozen=True, kw_only=True)
class ConfiguredAgent:
    """An agent with its configuration. Its program is imported and started when it is first asked."""

    spec: AgentSpec
    agent: Agent


@dataclass(frozen=True, kw_only=True)
class PooledSessionRequest:
    """The session that a message belongs to: its key in the pool, and how to open it if it is not there."""

    key: PoolKey
    profile: Profile
    opener: SessionOpener


class AgentRegistry:
    """All agents of a server."""

    def __init__(
        self,
        agents: Mapping[str, ConfiguredAgent],
        threads: Threads,
        default: str | None = None,
        token_for: TokenFor = lambda _caller, _scopes: nullcontext(),
    ) -> None:
        """Without `default`, the first agent is the default; without `token_for`, agents get no tools of the gateway."""
        self.agents = agents
        self._threads = threads
        self.default = default or next(iter(agents), None)
        self._token_for = token_for

    def find(self, name: str) -> ConfiguredAgent:
        """Return an agent; raises `InvalidRequest` with the nearest name, `CapabilityMissing` if no agent is configured."""
        if (ready := self.agents.get(name)) is not None:
            return ready
        if not self.agents:
            raise CapabilityMissing("No agent is configured.", hint="add [agents.NAME] to toolpost.toml")
        near = nearest_name(name[:64], self.agents)
        hint = f"did you mean `{near}`?" if near else f"known: {', '.join(self.agents)}"
        raise InvalidRequest(f"Unknown agent `{name[:64]}`.", hint=hint, agent=name[:64])

    def name_for(self, options: InvokeOptions, thread: Thread | None) -> str:
        """Return the agent that the options name, else the thread's, else the default one; empty if there is none."""
        return options.agent or (thread.agent if thread else None) or self.default or ""

    def model_for(self, options: InvokeOptions, thread: Thread | None) -> str | None:
        """Return the model that the options name, else the thread's if its own agent answers, else None."""
        if options.model or thread is None:
            return options.model
        is_own_agent = self.name_for(options, thread) == self.name_for(InvokeOptions(), thread)
        return thread.model if is_own_agent else None

    def request_session(
        self, principal: Principal, options: InvokeOptions, thread: Thread | None
    ) -> PooledSessionRequest:
        """Return the session that a message belongs to; prewarming uses the same, so that it opens the one that is used."""
        spec = self.find(self.name_for(options, thread)).spec
        profile = profile_of(spec, model=self.model_for(options, thread), scopes=principal.scopes)
        key = pool_key(principal.caller, profile, thread=thread.id if thread else None, session=options.session)
        return PooledSessionRequest(
            key=key, profile=profile, opener=self._make_opener(profile, principal, thread, options.session)
        )

    def _make_opener(
        self, profile: Profile, principal: Principal, thread: Thread | None, session: AgentSessionId | None
    ) -> SessionOpener:
        agent = self.agents[profile.spec.name].agent

        @asynccontextmanager
        async def open_session(on_gone: OnGone) -> AsyncIterator[OpenedSession]:
            # Read only here: a turn in a pooled session does not need the session that is stored.
            found = await self._threads.find(thread.id) if thread is not None else None
            # A session with another model, or with other tools, does not continue under this profile.
            may_resume = found is not None and found.session_profile == profile.digest
            caller = Caller(
                id=principal.caller.id,
                transport="agent",
                thread=thread.id if thread else None,
                is_read_only=principal.caller.is_read_only,
            )
            with self._token_for(caller, profile.scopes) as gateway:
                session_options = SessionOptions(
                    thread=thread.id if thread else None,
                    model=profile.model,
                    cwd=profile.spec.cwd,
                    permissions=profile.spec.permissions,
                    gateway=gateway,
                    resume=found.session if found is not None and may_resume else session,
                    on_gone=on_gone,
                )
                async with agent.open(session_options) as agent_session:
                    known_seq = found.session_told if found is not None and agent_session.is_resumed else 0
                    yield OpenedSession(session=agent_session, known_seq=known_seq)

        return open_session
