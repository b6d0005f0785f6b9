"""Derives the key of the session that a message belongs to; prompting and prewarming use the same function, and so share it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType

import msgspec

from toolpost import Caller, CallerId
from toolpost.base import Scope, ThreadId
from toolpost.parts.agents.agent import AgentSpec
from toolpost.parts.agents.ids import AgentSessionId

ProfileDigest = NewType("ProfileDigest", str)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Everything that distinguishes sessions: the agent and its settings, the model, and the tools that it may use."""

    spec: AgentSpec
    model: str | None
    scopes: tuple[Scope, ...]
    """Limits of the gateway's tools: the caller's, then the agent's own."""

    @property
    def digest(self) -> ProfileDigest:
        """A digest of all fields, which is stored with a thread: sessions are resumed under the same profile only."""
        spec = self.spec
        fields = [
            spec.name,
            spec.kind,
            spec.command,
            sorted(spec.env.items()),
            str(spec.cwd),
            spec.permissions,
            spec.options,
            self.model,
            [
                [None if s.tags is None else sorted(s.tags), s.tools, s.is_read_only, sorted(s.confirmed)]
                for s in self.scopes
            ],
        ]
        return ProfileDigest(hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()[:32])


def profile_of(spec: AgentSpec, *, model: str | None, scopes: Sequence[Scope]) -> Profile:
    """Make a profile; `model` overrides that of the agent, and `scopes` of the caller are narrowed by those of the agent."""
    own = Scope(tags=spec.tags, tools=spec.tools)
    return Profile(spec=spec, model=model or spec.model, scopes=(*scopes, *([own] if own.is_limited else [])))


@dataclass(frozen=True, kw_only=True)
class PoolKey:
    """The key of a session in the pool. It contains the caller, so that callers never share a session."""

    caller: CallerId
    thread: ThreadId | None
    session: AgentSessionId | None
    profile: ProfileDigest


def pool_key(
    caller: Caller, profile: Profile, *, thread: ThreadId | None = None, session: AgentSessionId | None = None
) -> PoolKey:
    """Return the key of the session of a thread, else of the agent's `session`, else of the caller's default session."""
    return PoolKey(
        caller=caller.id,
        thread=thread,
        session=session if thread is None else None,
        profile=profile.digest,
    )
