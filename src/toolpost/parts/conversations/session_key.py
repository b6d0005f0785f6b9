"""Which session a message belongs to: one function says so, for whoever asks and for whoever warms up."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType

import msgspec

from toolpost.base.caller import Caller, Scope
from toolpost.base.ids import AgentSessionId, CallerId, ThreadId
from toolpost.parts.conversations.agent import AgentSpec

ProfileDigest = NewType("ProfileDigest", str)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """All that makes one session differ from another: who answers, with which model, where, and what it may use."""

    spec: AgentSpec
    model: str | None
    scopes: tuple[Scope, ...]
    """What the gateway shows to it: the caller's limits and the agent's own."""

    @property
    def digest(self) -> ProfileDigest:
        """Return what tells profiles apart. Every part is named in it, none is counted."""
        spec = self.spec
        whole = [
            spec.name,
            spec.kind,
            spec.command,
            sorted(spec.env.items()),
            str(spec.cwd),
            spec.permissions,
            spec.options,
            self.model,
            [[None if s.tags is None else sorted(s.tags), s.tools] for s in self.scopes],
        ]
        return ProfileDigest(hashlib.sha256(msgspec.json.encode(whole, order="sorted")).hexdigest()[:32])


def profile_of(spec: AgentSpec, *, model: str | None, scopes: Sequence[Scope]) -> Profile:
    """Put a profile together: what the caller may see, within what the agent may."""
    own = Scope(tags=spec.tags, tools=spec.tools)
    return Profile(spec=spec, model=model or spec.model, scopes=(*scopes, *([own] if own.is_limited else [])))


@dataclass(frozen=True, kw_only=True)
class PoolKey:
    """What a session is pooled under. It belongs to a caller, so that no two ever share one by accident."""

    caller: CallerId
    thread: ThreadId | None
    session: AgentSessionId | None
    profile: ProfileDigest


def pool_key(
    caller: Caller, profile: Profile, *, thread: ThreadId | None = None, session: AgentSessionId | None = None
) -> PoolKey:
    """Derive the key: the thread, else the agent's session, else the caller's default one; always with the whole profile."""
    return PoolKey(
        caller=caller.id,
        thread=thread,
        session=session if thread is None else None,
        profile=profile.digest,
    )
