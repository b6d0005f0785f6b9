"""The configured agents by name, and the session that each message belongs to."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from toolpost.authoring.conversation import InvokeOptions
from toolpost.base.caller import Caller, Principal
from toolpost.base.ids import AgentSessionId
from toolpost.base.nearest import nearest_name
from toolpost.contracts.errors import CapabilityMissing, InvalidRequest
from toolpost.endpoints.auth.delegated_tokens import DelegatedTokens
from toolpost.parts.conversations.agent import Agent, AgentSpec, SessionOrder
from toolpost.parts.conversations.gateway_server import lend_token
from toolpost.parts.conversations.session_key import PoolKey, Profile, pool_key, profile_of
from toolpost.parts.conversations.session_pool import OnGone, OpenedSession, SessionOpener
from toolpost.store.threads import Thread, Threads


@dataclass(frozen=True, kw_only=True)
class ReadyAgent:
    """An agent with its configuration."""

    spec: AgentSpec
    agent: Agent


@dataclass(frozen=True, kw_only=True)
class SessionRequest:
    """The session that a message belongs to: its key in the pool, and how to open it if it is not there."""

    key: PoolKey
    profile: Profile
    opener: SessionOpener


class AgentRegistry:
    """All agents of a server."""

    def __init__(
        self,
        agents: Mapping[str, ReadyAgent],
        threads: Threads,
        default: str | None = None,
        tokens: DelegatedTokens | None = None,
    ) -> None:
        """Take also what issues tokens for the gateway; without it, agents get none of its tools.

        Without `default`, the first agent is the default.
        """
        self.agents = agents
        self._threads = threads
        self.default = default or next(iter(agents), None)
        self._tokens = tokens

    def find(self, name: str) -> ReadyAgent:
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
        is_its_own = self.name_for(options, thread) == self.name_for(InvokeOptions(), thread)
        return thread.model if is_its_own else None

    def session_for(self, standing: Principal, options: InvokeOptions, thread: Thread | None) -> SessionRequest:
        """Return the session that a message belongs to; prewarming uses the same, so that it opens the one that is used."""
        spec = self.find(self.name_for(options, thread)).spec
        profile = profile_of(spec, model=self.model_for(options, thread), scopes=standing.scopes)
        key = pool_key(standing.caller, profile, thread=thread.id if thread else None, session=options.session)
        return SessionRequest(
            key=key, profile=profile, opener=self._make_opener(profile, standing, thread, options.session)
        )

    def _make_opener(
        self, profile: Profile, standing: Principal, thread: Thread | None, session: AgentSessionId | None
    ) -> SessionOpener:
        agent = self.agents[profile.spec.name].agent

        @asynccontextmanager
        async def open_session(on_gone: OnGone) -> AsyncIterator[OpenedSession]:
            # Read here and not before: a turn in a pooled session does not need what is stored of the session before.
            found = await self._threads.find(thread.id) if thread is not None else None
            may_resume = found is not None and found.session_profile == profile.digest
            caller = Caller(id=standing.caller.id, transport="agent", thread=thread.id if thread else None)
            with lend_token(self._tokens, caller, profile.scopes) as door:
                order = SessionOrder(
                    thread=thread.id if thread else None,
                    model=profile.model,
                    cwd=profile.spec.cwd,
                    permissions=profile.spec.permissions,
                    door=door,
                    resume=found.session if found is not None and may_resume else session,
                    on_gone=on_gone,
                )
                async with agent.open(order) as session_of_agent:
                    told = found.session_told if found is not None and session_of_agent.is_resumed else 0
                    yield OpenedSession(session=session_of_agent, told=told)

        return open_session
