"""The callers of the HTTP endpoint: their tokens and views, prepared once and used by every request.

Four kinds of tokens are known here: those of `[callers.NAME]`, those of callers of the store, access tokens of an authorization
server once they are verified (cached for `VERIFIED_S`), and *delegated* tokens, which the gateway makes for agents that act for a
caller. Tokens themselves are not stored, only a digest with a key of this process: neither memory nor the time of a look-up
reveals anything about them. The store has a plain hash, so that the first request with such a token is compared with that.
"""

import hashlib
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NewType, Protocol

import anyio

from toolpost.base.caller import READ_ONLY, UNLIMITED, Caller, Scope, owner_of
from toolpost.base.ids import CallerId, JsonObject
from toolpost.contracts.errors import ToolpostError
from toolpost.discovery import EVERYTHING, View
from toolpost.endpoints.auth.oauth_rules import OAuthRules
from toolpost.endpoints.auth.people import PEOPLE, Person, PersonProvider, Role
from toolpost.endpoints.http.paths import MCP_PATH, view_of
from toolpost.endpoints.http.refusal import Refused, forbidden, unauthorized
from toolpost.fairness import Callers
from toolpost.store.callers import hash_token

VERIFIED_LIMIT: Final = 4_096
VERIFIED_S: Final = 300.0
"""How many verified tokens are cached, and for how many seconds at most: a key may be withdrawn."""

TokenDigest = NewType("TokenDigest", bytes)

DELEGATED_PREFIX: Final = "tpd-"
"""How every token of an agent begins."""

_KEY: Final = os.urandom(32)


def digest_of(token: bytes) -> TokenDigest:
    """Return the form in which a token is stored."""
    return TokenDigest(hashlib.blake2b(token, key=_KEY, digest_size=32).digest())


@dataclass(frozen=True, kw_only=True)
class KnownCaller:
    """A caller of the configuration or of the store: authenticated by a token of its own, or by claims of access tokens."""

    name: str
    token: TokenDigest | None = field(default=None, repr=False)
    scope: Scope = UNLIMITED
    mode: Scope = UNLIMITED
    """What its mode limits it to, in addition."""
    is_admin: bool = False
    subjects: frozenset[str] = frozenset()
    clients: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    claims: tuple[tuple[str, frozenset[str]], ...] = ()
    """Names of other claims, groups and roles among them, each with its accepted values."""
    issuer: str | None = None
    """The issuer of these tokens: the same `sub` is another person at another issuer."""
    passphrase: str | None = field(default=None, repr=False)
    """The hash of the passphrase by which a person logs in here."""
    token_hash: str | None = field(default=None, repr=False)
    """The hash of its token, for a caller of the store (`store/callers.py`): of its token nothing else is known."""
    secrets_hash: str = ""
    """Tells apart the passphrases and tokens that a caller has had: a login lasts as long as they are the same.
    Empty for callers as which no one logs in."""

    def matches(self, claims: "Claims") -> bool:
        """Whether the claims match. Each kind that is configured must match; a caller with none matches no claims."""
        if claims.login is not None and claims.login.caller is not None:
            is_same = self.secrets_hash != "" and claims.login.secrets_hash == self.secrets_hash
            return claims.login.caller == self.name and is_same
        if not (self.subjects or self.clients or self.scopes or self.claims):
            return False
        return (
            claims.issuer == self.issuer
            and (not self.subjects or claims.subject in self.subjects)
            and (not self.clients or claims.client in self.clients)
            and (not self.scopes or bool(self.scopes & claims.scopes))
            and all(accepted & claims.values(name) for name, accepted in self.claims)
        )

    @property
    def is_stored(self) -> bool:
        """Whether it is a caller of the store, and not of the configuration."""
        return self.token_hash is not None

    @property
    def has_own_token(self) -> bool:
        """Whether it authenticates with a token of its own."""
        return self.token is not None or self.is_stored

    def has_token(self, token: str) -> bool:
        """Whether this is the caller's own token."""
        raw = token.encode()
        return self.has_own_token and (self.token == digest_of(raw) or self.token_hash == hash_token(raw))

    def id_for(self, claims: "Claims") -> CallerId:
        """Return the caller id for these claims: `NAME` by subject, else `NAME:SUB`, or `NAME::CLIENT` without a subject."""
        if self.subjects or (claims.login is not None and claims.login.caller is not None):
            return CallerId(self.name)
        return CallerId(f"{self.name}:{claims.subject or f':{claims.client}'}")


@dataclass(frozen=True, kw_only=True)
class Login:
    """The grant of a token from our own authorization server."""

    grant: str
    """The id of what a person has consented to; all tokens of it are revoked together."""
    caller: str | None
    """The configured caller that logged in; None for a person of another provider, whose claims say who it is."""
    secrets_hash: str = ""
    is_read_only: bool = False
    """Whether its person has allowed read-only tools alone."""


@dataclass(frozen=True, kw_only=True)
class Claims:
    """The claims of a verified access token."""

    subject: str | None
    """Its `sub`; None in a token that was issued to a client alone, which matches no caller with `subjects`."""
    client: str | None
    scopes: frozenset[str]
    expires_at: float
    """When it has to be verified again: it is over, or its issuer may have revoked it."""
    issuer: str | None = None
    audiences: frozenset[str] | None = None
    """The endpoints that it is for, as URLs; None if it is for all of them."""
    all: JsonObject = field(default_factory=dict, repr=False)
    """Every claim, to find groups, roles and others in."""
    login: Login | None = None
    """Of a token that was issued here."""

    def values(self, name: str) -> frozenset[str]:
        """Return the values of a claim, see `find_values`."""
        return find_values(self.all, name)


def find_values(claims: JsonObject, name: str) -> frozenset[str]:
    """Return the values of a claim, as text: of the claim of this name, else with `a.b` of the claim `b` within `a`."""
    value: Any = claims.get(name)
    if value is None:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    values = value if isinstance(value, list) else [value]
    return frozenset(
        each if isinstance(each, str) else str(each).lower() for each in values if isinstance(each, str | bool | int)
    )


class TokenIssuer(Protocol):
    """The authorization server of this gateway, which a part brings."""

    issuer: str
    resource: str
    """The URL of this gateway's MCP endpoint."""
    scopes: tuple[str, ...]
    people: PersonProvider | None = None
    """The OpenID Connect provider whose people log in; None without one."""

    def hash_secrets(self, secrets: str) -> str:
        """Return what tells a caller's secrets apart and is stored with a login, but cannot be tried out without a key."""
        ...

    def has_issued(self, token: bytes) -> bool:
        """Whether a token has the form of those that are issued here."""
        ...

    async def find_claims(self, token: bytes) -> Claims | None:
        """Return the claims of an access token; None if it is not valid, or no longer."""
        ...


class TokenVerifier(Protocol):
    """Verifies access tokens."""

    @property
    def rules(self) -> OAuthRules: ...

    async def verify(self, token: bytes) -> Claims:
        """Return the claims of a valid token, or raise `Refused`."""
        ...


class Admission:
    """An authenticated caller and its view. Connections keep it while `is_valid` is true."""

    __slots__ = ("_is_invalid", "_until", "caller", "claims", "is_admin", "person", "scopes", "token", "view")

    def __init__(
        self,
        caller: Caller,
        *,
        scopes: tuple[Scope, ...],
        is_admin: bool,
        until: float | None = None,
        token: TokenDigest | None = None,
        claims: "tuple[OAuthRules, Claims] | None" = None,
        person: Person | None = None,
        owner: str = "",
    ) -> None:
        """`owner` is whose tools of servers with credentials per caller the view shows; empty where no server has them."""
        self.caller = caller
        self.token = token
        """The digest of the configured or delegated token that was sent."""
        self.claims = claims
        """The claims of the access token that was sent, and the rules by which it was valid."""
        self.person = person
        """Who signed in in a browser, and has no token."""
        self.scopes = scopes
        self.view: View = EVERYTHING.within(scopes).of_owner(owner)
        self.is_admin = is_admin
        """Whether it may see everything. What a person may change, their role says."""
        self._until = until
        self._is_invalid = False

    @property
    def is_valid(self) -> bool:
        """False once the token has expired or was removed: authenticate again."""
        return not self._is_invalid and (self._until is None or time.time() < self._until)

    @property
    def until(self) -> float | None:
        """When its token has to be verified again, in seconds of the wall clock; None if it does not end by itself."""
        return self._until

    @property
    def is_anonymous(self) -> bool:
        """Whether it came without a token, which is let in where none is required."""
        return self.token is None and self.claims is None and self.person is None

    def invalidate(self) -> None:
        """Invalidate this; requests that kept it authenticate again."""
        self._is_invalid = True


_PEOPLE: Final = KnownCaller(name=PEOPLE)
"""The caller of people who signed in in a browser."""

UNMAPPED_CALLER: Final = KnownCaller(name="oauth")
"""The caller of valid access tokens that match no configured caller, where those are accepted."""


@dataclass(frozen=True, kw_only=True)
class CallerTable:
    """All callers: those of the configuration, with `with_stored` those of the store too."""

    callers: tuple[KnownCaller, ...] = ()
    endpoint: Scope = UNLIMITED
    """A scope that limits every caller."""
    read_only: Scope = READ_ONLY
    """What limits a caller whose token is for read-only tools alone."""
    verifier: TokenVerifier | None = None
    others: KnownCaller | None = None
    """The caller of valid access tokens, of its issuer, that match no other; None refuses them."""

    @property
    def is_open(self) -> bool:
        """Whether no token is required."""
        return not self.callers and self.verifier is None

    def with_stored(self, stored: Iterable[KnownCaller]) -> "CallerTable":
        """Add callers of the store; one of the configuration with the same name wins.

        Where no token is required there are none: they would be limited by a token that nobody needs to send. So neither the
        first of them nor the last changes whether a token is required.
        """
        names = {known.name for known in self.callers}
        added = () if self.is_open else tuple(known for known in stored if known.name not in names)
        return replace(self, callers=(*self.callers, *added)) if added else self

    @property
    def are_several(self) -> bool:
        """Whether more than one caller may exist: an authorization server gives tokens to any number."""
        return len(self.callers) > 1 or self.verifier is not None

    @property
    def admins(self) -> frozenset[str] | None:
        """Names of the callers who are administrators; None where no token is required."""
        return None if self.is_open else frozenset(known.name for known in self.callers if known.is_admin)

    def match(self, claims: Claims) -> KnownCaller | None:
        """Return the first caller whose rules match the claims, else `others`."""
        known = next((known for known in self.callers if known.matches(claims)), None)
        if known is None and self.others is not None and self.others.issuer == claims.issuer:
            return self.others
        return known


class Roster:
    """The callers that may use the HTTP endpoint now; a reload replaces them while requests run."""

    def __init__(
        self,
        members: CallerTable | None = None,
        callers: Callers | None = None,
        *,
        on_verified: Callable[[Caller, bytes, Claims], None] = lambda _caller, _token, _claims: None,
    ) -> None:
        """`callers` is what the fair shares ask about callers; it is updated here.

        `on_verified` is called with each access token that was verified, except those that were issued here.
        """
        self._callers = callers or Callers()
        self._by_token: dict[TokenDigest, Admission] = {}
        self.stored: tuple[KnownCaller, ...] = ()
        """The callers of the store, also those of which a caller of the configuration has the name."""
        self._by_hash: dict[str, KnownCaller] = {}
        self._recognized: dict[TokenDigest, str] = {}
        """Tokens of callers of the store that were sent, with their hashes: from then on they are found like the others."""
        self._verified: OrderedDict[TokenDigest, Admission] = OrderedDict()
        self._delegated: dict[TokenDigest, Admission] = {}
        self._ended: deque[str] = deque(maxlen=VERIFIED_LIMIT)
        self._open: dict[object, tuple[Admission, Callable[[], None]]] = {}
        self.anonymous: Admission | None = None
        """The admission of every request where no token is required, else None."""
        self.has_caller_credentials = False
        """Whether a server has credentials per caller, so that views have owners; takes effect with `replace`."""
        self.keeps_tokens = False
        """Whether a server needs the access tokens of callers, so that `on_verified` is called; takes effect with `replace`."""
        self._on_verified = on_verified
        self.replaced = anyio.Event()
        """Set when the members are replaced; by then this is a new, unset event."""
        self.replace(members or CallerTable())

    def replace_stored(self, stored: Iterable[KnownCaller]) -> None:
        """Replace the callers of the store."""
        self.stored = tuple(stored)
        self.replace(self.configured)

    def replace(self, configured: CallerTable) -> None:
        """Replace all callers but those of the store.

        Every admission is invalidated, so that each request authenticates against the new ones.
        """
        before = [*self._by_token.values(), *self._verified.values(), *filter(None, [self.anonymous])]
        self.configured = configured
        self.members = members = configured.with_stored(self.stored)
        self._callers.are_several = members.are_several
        self._callers.admins = members.admins
        self._by_token = {
            known.token: self._make_admission(known, CallerId(known.name), token=known.token)
            for known in members.callers
            if known.token is not None
        }
        self._by_hash = {known.token_hash: known for known in members.callers if known.token_hash is not None}
        recognized, self._recognized = self._recognized, {}
        for digest, token_hash in recognized.items():
            self._recognize(digest, token_hash)
        self._verified = OrderedDict()
        local = KnownCaller(name="local", is_admin=True)
        self.anonymous = self._make_admission(local, CallerId("local")) if members.is_open else None
        # After the new members are in place: a request that authenticates again must not find the old ones.
        for admission in before:
            admission.invalidate()
        self._renew_delegated()
        self._close_open()
        # Waiters hold the old event; one that begins to wait now gets the new one.
        self.replaced.set()
        self.replaced = anyio.Event()

    def find(self, token: bytes) -> Admission | None:
        """Return the admission of a token; None if it has to be verified first."""
        digest = digest_of(token)
        if (admission := self._by_token.get(digest)) is not None:
            return admission
        admission = self._delegated.get(digest) or self._verified.get(digest)
        return admission if admission is not None and admission.is_valid else None

    def admit_person(self, subject: str, *, name: str, role: Role, signed_in_at: float, until: float) -> Admission:
        """Make the admission of a person who signed in in a browser, see `Person`."""
        person = Person(subject=subject, name=name, role=role, signed_in_at=signed_in_at)
        caller = Caller(
            id=CallerId(f"{PEOPLE}:{person.subject}"), transport="http", is_admin=person.may("administrator")
        )
        scopes = self._scopes(_PEOPLE, is_read_only=False)
        # They see everything, in any role; JSON APIs hold them to it where something is changed.
        return Admission(caller, scopes=scopes, is_admin=True, until=until, person=person, owner=self._owner_of(caller))

    def delegate(self, token: bytes, caller: Caller, scopes: tuple[Scope, ...]) -> None:
        """Accept a delegated token as this caller until it is revoked.

        The rights of an administrator are not delegated: an agent may do what a text that it reads tells it to.
        """
        digest = digest_of(token)
        agent = replace(caller, is_admin=False)
        self._delegated[digest] = Admission(
            agent, scopes=scopes, is_admin=False, token=digest, owner=self._owner_of(agent)
        )

    @staticmethod
    def is_delegated(token: str) -> bool:
        """Whether a token has the form of those that gateways issue to agents."""
        return token.startswith(DELEGATED_PREFIX)

    def revoke(self, token: bytes) -> None:
        """Accept a delegated token no longer, and close the streams that were opened with it."""
        if (admission := self._delegated.pop(digest_of(token), None)) is not None:
            admission.invalidate()
            self._close_open()

    def end_logins(self, grants: Iterable[str]) -> None:
        """Forget the access tokens of logins that were revoked, and close the streams that were opened with them."""
        ended = set(grants).difference(self._ended)
        if not ended:
            return
        for digest, admission in list(self._verified.items()):
            if admission.claims is not None and (login := admission.claims[1].login) and login.grant in ended:
                del self._verified[digest]
                admission.invalidate()
        self._ended.extend(ended)
        self._close_open()

    def find_delegated(self, token: bytes) -> Admission | None:
        """Return the admission of a delegated token, None for any other."""
        return self._delegated.get(digest_of(token)) if self._delegated else None

    async def verify(self, token: bytes) -> Admission:
        """Verify an access token and cache its admission; raise `Refused` if it is invalid or matches no caller."""
        members = self.members
        if (admission := self._recognize(digest_of(token), hash_token(token))) is not None:
            return admission
        if members.verifier is None:
            raise unauthorized("The token is not valid")
        claims = await members.verifier.verify(token)
        if members is not self.members:  # replaced while the token was verified
            return self.find(token) or await self.verify(token)
        known = members.match(claims)
        # It may have been revoked while it was looked up.
        is_over = claims.login is not None and (known is None or claims.login.grant in self._ended)
        if is_over:
            # Its person logs in again, if they still may.
            problem = "The token is from a login that no longer holds"
            raise unauthorized(problem, members.verifier.rules.challenge("invalid_token", problem))
        if known is None:
            raise forbidden("The token is valid but not mapped to any configured caller")
        until = min(claims.expires_at, time.time() + VERIFIED_S)
        if claims.login is not None:
            # A person has let a client call tools, and not administrate.
            known = replace(known, is_admin=False)
        admission = self._make_admission(known, known.id_for(claims), until, claims=(members.verifier.rules, claims))
        # By its digest: the memory of the gateway holds no token longer than its request.
        self._verified[digest_of(token)] = admission
        if self.keeps_tokens and claims.login is None:
            self._on_verified(admission.caller, token, claims)
        while len(self._verified) > VERIFIED_LIMIT:
            self._verified.popitem(last=False)
        return admission

    def _recognize(self, digest: TokenDigest, token_hash: str) -> Admission | None:
        """Have a token of a caller of the store found by its digest from now on; None if it is the token of none."""
        # Not constant in time, which reveals nothing: it compares a hash of 256 random bits.
        if (known := self._by_hash.get(token_hash)) is None:
            return None
        self._recognized[digest] = token_hash
        admission = self._make_admission(known, CallerId(known.name), token=digest)
        return self._by_token.setdefault(digest, admission)

    def challenge(self, path: str = MCP_PATH) -> str:
        """Write the `WWW-Authenticate` header of a 401."""
        return "Bearer" if self.members.verifier is None else self.members.verifier.rules.challenge(path=path)

    def check_endpoint(self, admission: Admission, path: str) -> None:
        """Raise `Refused` for a token that was issued for another endpoint, or by a login and is used for more than MCP."""
        verifier = self.members.verifier
        if admission.claims is None or verifier is None:
            return
        if admission.claims[1].login is not None and view_of(path) is None:
            # A person has let a client call tools. It may not approve calls, or connect servers, in their name.
            raise forbidden("A token from a login is for MCP only")
        audiences = admission.claims[1].audiences
        if audiences is not None and verifier.rules.url_of(path) not in audiences:
            problem = "The token is meant for another endpoint"
            raise unauthorized(problem, verifier.rules.challenge("invalid_token", problem, path=path))

    def metadata(self, path: str) -> JsonObject | None:
        """Return the protected resource metadata; None without an authorization server."""
        return None if self.members.verifier is None else self.members.verifier.rules.metadata(path)

    def is_known(self, caller: CallerId) -> bool:
        """Whether a caller with this id may still authenticate."""
        if self.anonymous is not None:
            return caller == self.anonymous.caller.id
        return self._find_configured(caller) is not None

    def scopes_of(self, caller: Caller) -> tuple[Scope, ...] | None:
        """Return the scopes that limit a caller; None if it may no longer authenticate."""
        if self.anonymous is not None:
            return self.anonymous.scopes if caller.id == self.anonymous.caller.id else None
        known = self._find_configured(caller.id)
        return None if known is None else self._scopes(known, is_read_only=caller.is_read_only)

    def _find_configured(self, caller: CallerId) -> KnownCaller | None:
        # `NAME:SUB` is one of the people who are `NAME`.
        name = caller.partition(":")[0]
        others = (self.members.others, _PEOPLE)
        return next((one for one in (*self.members.callers, *others) if one and one.name == name), None)

    def _scopes(self, known: KnownCaller, *, is_read_only: bool) -> tuple[Scope, ...]:
        own = self.members.read_only if is_read_only else UNLIMITED
        return tuple(scope for scope in (self.members.endpoint, known.scope, known.mode, own) if scope.is_limited)

    def _renew_delegated(self) -> None:
        """Revoke delegated tokens whose caller was removed, and narrow the others to what their callers see now."""
        for digest, before in list(self._delegated.items()):
            before.invalidate()
            now = self.scopes_of(before.caller)
            if now is None:
                del self._delegated[digest]
                continue
            scopes = tuple(dict.fromkeys((*before.scopes, *now)))
            self._delegated[digest] = Admission(
                before.caller, scopes=scopes, is_admin=False, token=digest, owner=self._owner_of(before.caller)
            )

    def _owner_of(self, caller: Caller) -> str:
        return owner_of(caller) if self.has_caller_credentials else ""

    def _make_admission(
        self,
        known: KnownCaller,
        caller: CallerId,
        until: float | None = None,
        *,
        token: TokenDigest | None = None,
        claims: tuple[OAuthRules, Claims] | None = None,
    ) -> Admission:
        login = claims[1].login if claims is not None else None
        is_read_only = login is not None and login.is_read_only
        admitted = Caller(
            id=caller,
            transport="http",
            is_admin=known.is_admin,
            is_read_only=is_read_only,
            is_from_login=login is not None,
        )
        return Admission(
            admitted,
            scopes=self._scopes(known, is_read_only=is_read_only),
            is_admin=known.is_admin,
            until=until,
            token=token,
            claims=claims,
            owner=self._owner_of(admitted),
        )

    async def renew(self, token: bytes, before: Admission) -> Admission | None:
        """Verify the token of an admission that is over; None if it is refused, or stands for another caller now."""
        try:
            now = self.find(token) or await self.verify(token)
        except (Refused, ToolpostError):
            # Also if its issuer or the store cannot be asked: the client comes again, and is told so.
            return None
        return now if now.caller.id == before.caller.id else None

    @contextmanager
    def on_removal(self, admission: Admission, leave: Callable[[], None]) -> Iterator[None]:
        """Call `leave` once the token of this admission is no longer accepted; at once if that is so already."""
        # An admission may be held by several streams at once, so that it cannot be the key.
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
        """Whether the same token would authenticate the same caller now, with whatever scopes."""
        if before.person is not None:
            return True  # its admission holds for seconds
        if before.token is not None:
            now = self._by_token.get(before.token) or self._delegated.get(before.token)
        elif before.claims is not None:
            rules, claims = before.claims
            if claims.login is not None and claims.login.grant in self._ended:
                return False
            verifier = self.members.verifier
            known = self.members.match(claims) if verifier is not None and verifier.rules == rules else None
            return known is not None and known.id_for(claims) == before.caller.id
        else:
            now = self.anonymous
        return now is not None and now.caller.id == before.caller.id
