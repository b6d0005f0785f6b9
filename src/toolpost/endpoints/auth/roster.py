"""Who is known: which token lets whom in, and what they see. Prepared once, looked up by every request.

Tokens themselves are not kept, only a digest with a key that this process alone has: neither what is in memory nor how long
a look-up takes tells anything about them.
"""

import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, NewType, Protocol

import anyio

from toolpost.base.caller import UNLIMITED, Caller, Scope
from toolpost.base.ids import CallerId, JsonObject
from toolpost.discovery import EVERYTHING, View
from toolpost.endpoints.auth.oauth_rules import OAuthRules
from toolpost.endpoints.http.refusal import forbidden, unauthorized
from toolpost.shares import Callers

JUDGED_LIMIT: Final = 4_096
JUDGED_S: Final = 300.0
"""How many tokens that were looked into are remembered, and for how long at most: a key may be withdrawn."""

TokenDigest = NewType("TokenDigest", bytes)

_KEY: Final = os.urandom(32)


def digest_of(token: bytes) -> TokenDigest:
    """Return what is kept of a token."""
    return TokenDigest(hashlib.blake2b(token, key=_KEY, digest_size=32).digest())


@dataclass(frozen=True, kw_only=True)
class KnownCaller:
    """Somebody whom the configuration names: by a token, or by claims of the tokens that another server gives out."""

    name: str
    token: TokenDigest | None = field(default=None, repr=False)
    scope: Scope = UNLIMITED
    is_admin: bool = False
    subjects: frozenset[str] = frozenset()
    clients: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()

    def is_meant_by(self, claims: "Claims") -> bool:
        """Whether claims fit: of each kind that is set, one must."""
        if not (self.subjects or self.clients or self.scopes):
            return False
        return (
            (not self.subjects or claims.subject in self.subjects)
            and (not self.clients or claims.client in self.clients)
            and (not self.scopes or bool(self.scopes & claims.scopes))
        )

    def id_for(self, claims: "Claims") -> CallerId:
        """Return the id of a holder of these claims: `NAME` by subject, else `NAME:SUB`, or `NAME::CLIENT` without a subject."""
        if self.subjects:
            return CallerId(self.name)
        return CallerId(f"{self.name}:{claims.subject or f':{claims.client}'}")


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What an access token says, once it is known to be true."""

    subject: str | None
    """Its `sub`; None in a token that stands for a client alone, which fits no caller with `subjects`."""
    client: str | None
    scopes: frozenset[str]
    expires_at: float


class Judge(Protocol):
    """Whoever can tell whether an access token is true."""

    @property
    def rules(self) -> OAuthRules:
        """What it judges by."""
        ...

    async def judge(self, token: bytes) -> Claims:
        """Return what it says, or turn it away."""
        ...

    def challenge(self) -> str:
        """Say how to come by a token, as `WWW-Authenticate` has it."""
        ...

    def metadata(self) -> JsonObject:
        """Say where tokens come from, to whoever asks."""
        ...


class Admission:
    """Somebody who was let in, and what they see, for as long as that holds."""

    __slots__ = ("_is_withdrawn", "_until", "caller", "claims", "is_admin", "scopes", "token", "view")

    def __init__(
        self,
        caller: Caller,
        *,
        scopes: tuple[Scope, ...],
        is_admin: bool,
        until: float | None = None,
        token: TokenDigest | None = None,
        claims: "tuple[OAuthRules, Claims] | None" = None,
    ) -> None:
        self.caller = caller
        self.token = token
        """What was shown: a token of ours, or one that was lent."""
        self.claims = claims
        """What was shown otherwise: the claims of an access token, and the rules by which it was true."""
        self.scopes = scopes
        self.view: View = EVERYTHING.within(scopes)
        self.is_admin = is_admin
        self._until = until
        self._is_withdrawn = False

    @property
    def holds(self) -> bool:
        """Whether it still does: the token may have been removed since, or have expired."""
        return not self._is_withdrawn and (self._until is None or time.time() < self._until)

    def withdraw(self) -> None:
        """Hold no longer; whoever has kept it asks anew."""
        self._is_withdrawn = True


ANYBODY: Final = KnownCaller(name="oauth")
"""Stands for whoever has a true token that no caller is meant by, where those are let in."""


@dataclass(frozen=True, kw_only=True)
class Members:
    """Everybody who may come in, as configured."""

    callers: tuple[KnownCaller, ...] = ()
    endpoint: Scope = UNLIMITED
    """What nobody sees more than."""
    judge: Judge | None = None
    others: KnownCaller | None = None
    """What becomes of a true token that no caller is meant by; without this, it is turned away."""

    @property
    def is_open(self) -> bool:
        """Whether nobody is asked for a token."""
        return not self.callers and self.judge is None

    @property
    def are_several(self) -> bool:
        """Whether more than one caller may come in: an authorization server gives tokens to any number."""
        return len(self.callers) > 1 or self.judge is not None

    @property
    def admins(self) -> frozenset[str] | None:
        """Names of the callers who may look after everything; None where nobody is asked for a name."""
        return None if self.is_open else frozenset(known.name for known in self.callers if known.is_admin)

    def meant_by(self, claims: Claims) -> KnownCaller | None:
        """Return the first caller whom claims fit."""
        return next((known for known in self.callers if known.is_meant_by(claims)), self.others)


class Roster:
    """Who may come in over HTTP now."""

    def __init__(self, members: Members | None = None, callers: Callers | None = None) -> None:
        """Take what everything that is shared out asks about callers; it is kept current here."""
        self._callers = callers or Callers()
        self._by_token: dict[TokenDigest, Admission] = {}
        self._judged: OrderedDict[TokenDigest, Admission] = OrderedDict()
        self._lent: dict[TokenDigest, Admission] = {}
        self._open: dict[object, tuple[Admission, Callable[[], None]]] = {}
        self.everybody: Admission | None = None
        """Set where nobody is asked for a token."""
        self.replaced = anyio.Event()
        """Set when others are known; there is a new one by then."""
        self.replace(members or Members())

    def replace(self, members: Members) -> None:
        """Know these from now on. Whoever is in has to show a token anew: one that is gone ends with this."""
        before = [*self._by_token.values(), *self._judged.values(), *filter(None, [self.everybody])]
        self.members = members
        self._callers.are_several = members.are_several
        self._callers.admins = members.admins
        self._by_token = {
            known.token: self._admission(known, CallerId(known.name), token=known.token)
            for known in members.callers
            if known.token is not None
        }
        self._judged = OrderedDict()
        local = KnownCaller(name="local", is_admin=True)
        self.everybody = self._admission(local, CallerId("local")) if members.is_open else None
        for admission in before:
            admission.withdraw()
        self._renew_lent()
        self._close_open()
        self.replaced.set()
        self.replaced = anyio.Event()

    def find(self, token: bytes) -> Admission | None:
        """Return who shows this token, None if it has to be looked into first."""
        digest = digest_of(token)
        if (admission := self._by_token.get(digest)) is not None:
            return admission
        admission = self._lent.get(digest) or self._judged.get(digest)
        return admission if admission is not None and admission.holds else None

    def lend(self, token: bytes, caller: Caller, scopes: tuple[Scope, ...]) -> None:
        """Let in whoever shows this token, in the name of a caller who has come in, until it is taken back.

        What administrators may do is not lent: an agent does what it reads.
        """
        digest = digest_of(token)
        lent = replace(caller, is_admin=False)
        self._lent[digest] = Admission(lent, scopes=scopes, is_admin=False, token=digest)

    def take_back(self, token: bytes) -> None:
        """Let nobody in by a token that was lent."""
        if (admission := self._lent.pop(digest_of(token), None)) is not None:
            admission.withdraw()
            self._close_open()

    def find_lent(self, token: bytes) -> Admission | None:
        """Return who shows a token that was lent."""
        return self._lent.get(digest_of(token)) if self._lent else None

    async def judge(self, token: bytes) -> Admission:
        """Look into a token that is not known, and remember what came of it if it is a true one."""
        members = self.members
        if members.judge is None:
            raise unauthorized("The token is not one that lets anybody in")
        claims = await members.judge.judge(token)
        if members is not self.members:  # others are known by now
            return self.find(token) or await self.judge(token)
        known = members.meant_by(claims)
        if known is None:
            raise forbidden("The token is valid but not mapped to any configured caller")
        until = min(claims.expires_at, time.time() + JUDGED_S)
        admission = self._admission(known, known.id_for(claims), until, claims=(members.judge.rules, claims))
        self._judged[digest_of(token)] = admission
        while len(self._judged) > JUDGED_LIMIT:
            self._judged.popitem(last=False)
        return admission

    def challenge(self) -> str:
        """Say what to show, as `WWW-Authenticate` has it."""
        return "Bearer" if self.members.judge is None else self.members.judge.challenge()

    def metadata(self) -> JsonObject | None:
        """Say where tokens come from; None if nobody but us gives them out."""
        return None if self.members.judge is None else self.members.judge.metadata()

    def knows(self, caller: CallerId) -> bool:
        """Whether somebody of this id may still come in."""
        if self.everybody is not None:
            return caller == self.everybody.caller.id
        names = {known.name for known in (*self.members.callers, *filter(None, [self.members.others]))}
        return caller.partition(":")[0] in names

    def scopes_of(self, caller: CallerId) -> tuple[Scope, ...] | None:
        """Say what somebody of this id is limited to; None if they may not come in any more."""
        if not self.knows(caller):
            return None
        if self.everybody is not None:
            return self.everybody.scopes
        known = (*self.members.callers, *filter(None, [self.members.others]))
        name = caller.partition(":")[0]
        return self._scopes(next(one for one in known if one.name == name))

    def _scopes(self, known: KnownCaller) -> tuple[Scope, ...]:
        return tuple(scope for scope in (self.members.endpoint, known.scope) if scope.is_limited)

    def _renew_lent(self) -> None:
        """Take back what was lent in the name of somebody who may come in no more; who may see less, lends less."""
        for digest, before in list(self._lent.items()):
            before.withdraw()
            now = self.scopes_of(before.caller.id)
            if now is None:
                del self._lent[digest]
                continue
            scopes = tuple(dict.fromkeys((*before.scopes, *now)))
            self._lent[digest] = Admission(before.caller, scopes=scopes, is_admin=False, token=digest)

    def _admission(
        self,
        known: KnownCaller,
        caller: CallerId,
        until: float | None = None,
        *,
        token: TokenDigest | None = None,
        claims: tuple[OAuthRules, Claims] | None = None,
    ) -> Admission:
        return Admission(
            Caller(id=caller, transport="http", is_admin=known.is_admin),
            scopes=self._scopes(known),
            is_admin=known.is_admin,
            until=until,
            token=token,
            claims=claims,
        )

    @contextmanager
    def on_removal(self, admission: Admission, leave: Callable[[], None]) -> Iterator[None]:
        """Call `leave` once what was shown for this admission lets its caller in no more, at once if that is so already."""
        key = object()
        self._open[key] = admission, leave
        try:
            self._close_open()
            yield
        finally:
            self._open.pop(key, None)

    def _close_open(self) -> None:
        for key, (admission, leave) in list(self._open.items()):
            if not self._still_admits(admission):
                del self._open[key]
                leave()

    def _still_admits(self, before: Admission) -> bool:
        """Return whether the same token would let in the same caller now, with whatever scopes."""
        if before.token is not None:
            now = self._by_token.get(before.token) or self._lent.get(before.token)
        elif before.claims is not None:
            rules, claims = before.claims
            judge = self.members.judge
            known = self.members.meant_by(claims) if judge is not None and judge.rules == rules else None
            return known is not None and known.id_for(claims) == before.caller.id
        else:
            now = self.everybody
        return now is not None and now.caller.id == before.caller.id
