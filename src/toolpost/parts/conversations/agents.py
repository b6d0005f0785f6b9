"""Who answers: agents by their names, and the session that each message belongs to."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from toolpost.authoring.conversation import InvokeOptions
from toolpost.base.caller import Caller, Principal
from toolpost.base.ids import AgentSessionId
from toolpost.base.nearest import nearest_name
from toolpost.contracts.errors import CapabilityMissing, InvalidRequest
from toolpost.parts.conversations.agent import Agent, AgentSpec, SessionOrder
from toolpost.parts.conversations.gateway_token import DoorKeeper, lent
from toolpost.parts.conversations.session_key import PoolKey, Profile, pool_key, profile_of
from toolpost.parts.conversations.session_pool import OnGone, Opened, Opener
from toolpost.store.threads import Thread, Threads


@dataclass(frozen=True, kw_only=True)
class ReadyAgent:
    """An agent, and how it is configured."""

    spec: AgentSpec
    agent: Agent


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A session that somebody wants: what it is pooled under, and how it is opened."""

    key: PoolKey
    profile: Profile
    opener: Opener


class Crew:
    """Everybody who answers."""

    def __init__(
        self,
        agents: Mapping[str, ReadyAgent],
        threads: Threads,
        default: str | None = None,
        tokens: DoorKeeper | None = None,
    ) -> None:
        """Take also what lends sessions a token for the gateway; without it, agents have no tools of it."""
        self.agents = agents
        self._threads = threads
        self.default = default or next(iter(agents), None)
        self._tokens = tokens

    def find(self, name: str) -> ReadyAgent:
        """Return an agent, or say who there is."""
        if (ready := self.agents.get(name)) is not None:
            return ready
        if not self.agents:
            raise CapabilityMissing(
                "No agent is configured, so nobody could answer.", hint="add [agents.NAME] to toolpost.toml"
            )
        near = nearest_name(name[:64], self.agents)
        hint = f"did you mean `{near}`?" if near else f"known: {', '.join(self.agents)}"
        raise InvalidRequest(f"No agent is called `{name[:64]}`.", hint=hint, agent=name[:64])

    def name_for(self, options: InvokeOptions, thread: Thread | None) -> str:
        """Say who is meant: whoever the options name, else the thread, else the default agent; empty if nobody is."""
        return options.agent or (thread.agent if thread else None) or self.default or ""

    def model_for(self, options: InvokeOptions, thread: Thread | None) -> str | None:
        """Say which model is meant: the one that the options name, else the thread's, where the thread's own agent answers."""
        if options.model or thread is None:
            return options.model
        is_its_own = self.name_for(options, thread) == self.name_for(InvokeOptions(), thread)
        return thread.model if is_its_own else None

    def session_for(self, standing: Principal, options: InvokeOptions, thread: Thread | None) -> Wanted:
        """Say which session a message belongs to, for whoever asks and for whoever warms up."""
        spec = self.find(self.name_for(options, thread)).spec
        profile = profile_of(spec, model=self.model_for(options, thread), scopes=standing.scopes)
        key = pool_key(standing.caller, profile, thread=thread.id if thread else None, session=options.session)
        return Wanted(key=key, profile=profile, opener=self._opener(profile, standing, thread, options.session))

    def _opener(
        self, profile: Profile, standing: Principal, thread: Thread | None, session: AgentSessionId | None
    ) -> Opener:
        agent = self.agents[profile.spec.name].agent

        @asynccontextmanager
        async def opened(on_gone: OnGone) -> AsyncIterator[Opened]:
            # What is known of the session before is looked up when it is needed: a warm turn does without.
            found = await self._threads.find(thread.id) if thread is not None else None
            may_resume = found is not None and found.session_profile == profile.digest
            caller = Caller(id=standing.caller.id, transport="agent", thread=thread.id if thread else None)
            with lent(self._tokens, caller, profile.scopes) as door:
                order = SessionOrder(
                    thread=thread.id if thread else None,
                    model=profile.model,
                    cwd=profile.spec.cwd,
                    permissions=profile.spec.permissions,
                    door=door,
                    resume=found.session if found is not None and may_resume else session,
                    on_gone=on_gone,
                )
                async with agent.open(order) as opened_session:
                    told = found.session_told if found is not None and opened_session.is_resumed else 0
                    yield Opened(session=opened_session, told=told)

        return opened
