"""The access tokens of servers: read from the vault, renewed in time, and replaced when a server refuses them.

All connections of one server that use the same credential share a `ServerToken`. Its `header` is what they send; it is good
without another look until `fresh_until`. A renewal is made by one gateway of a store at a time (a lease), because a refresh token
can often be used once only, and a second use revokes everything that was granted. It is made in a task of its own: a call that
is cancelled must not lose the answer, which is the only copy of the next refresh token.

Before the request the grant is stored with a mark, after it the new one without. A mark that stays shows that no answer came: the
process was killed, or the connection broke. The authorization server may have replaced the refresh token then, and its answer is
lost. The old one is tried again all the same: only `invalid_grant` says that it is of no more use, and that a person has to log
in again.

The parts of the SDK for the protocol (`authorization_servers`, `token_requests`) are imported at their first use.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import msgspec

from toolpost.base.events import event
from toolpost.base.late_import import import_in_thread
from toolpost.base.redaction import forget_secrets, forms_of, remember_secrets
from toolpost.contracts.errors import (
    BadConfiguration,
    CredentialRequired,
    LoginRequired,
    StoreUnavailable,
    ToolpostError,
    UpstreamUnavailable,
)
from toolpost.credentials.challenge import Challenge, parse_challenge
from toolpost.credentials.fetch import Fetcher
from toolpost.credentials.grant import NAME, Grant, decode_grant, encode_grant
from toolpost.credentials.subjects import SubjectTokens
from toolpost.credentials.vault import Vault
from toolpost.upstreams.failures import copy_error
from toolpost.upstreams.spec import AuthSpec, ServerSpec

_log = logging.getLogger("toolpost.oauth")

RELOAD_S: Final = 30.0
"""How long a credential is used without another look into the vault: a logout in another process takes that long at most."""

LIFETIME_S: Final = 86_400.0
"""How long a token without an expiry is taken to be valid after it was replaced."""

OUTAGE_S: Final = 600.0
"""How long a credential is used without another look while the store cannot be reached."""

RENEWAL_S: Final = 45.0
"""How long one gateway may take to renew a token before another one tries, and how long the others wait for it."""

REQUEST_S: Final = 30.0
"""How long the requests of a renewal may take; shorter than `RENEWAL_S`, so that the lease still covers the write after them."""

POLL_S: Final = 0.1
SAVE_S: Final = 1.0
CLOSE_S: Final = 5.0

SPARE_S: Final = 2.0
"""A token that is valid for longer than this is used while it is being renewed."""

BACKOFF_S: Final = 1.0
BACKOFF_LIMIT_S: Final = 60.0
RETRY_AFTER_LIMIT_S: Final = 300.0
"""An authorization server may ask for a longer pause than the backoff, but not for a day."""

_UNEXPLAINED: Final = "it refused access (HTTP 401) without saying how to get it"
_INTERRUPTED: Final = "a renewal of its tokens was interrupted, and the new ones are lost"


class RenewalBackoff:
    """Delays renewals that fail, or that are of no use. The second one is not delayed: most failures are short."""

    def __init__(self) -> None:
        self._failures = 0
        self._failed_at = self._until = -math.inf
        self._error: ToolpostError | None = None

    def note_failure(self, error: ToolpostError) -> None:
        now = time.monotonic()
        # Whether a renewal was of use is never reported, so that old failures are forgotten by their age.
        self._failures = 1 if now > self._failed_at + 2 * BACKOFF_LIMIT_S else self._failures + 1
        self._failed_at, self._error = now, copy_error(error)
        delay_s = 0.0 if self._failures == 1 else min(BACKOFF_LIMIT_S, BACKOFF_S * 2.0 ** (self._failures - 2))
        asked_ms = error.details.get("retryAfterMs", 0)
        self._until = now + max(delay_s, min(asked_ms / 1000, RETRY_AFTER_LIMIT_S))

    def forget(self) -> None:
        self._failures, self._until = 0, -math.inf

    @property
    def wait_s(self) -> float:
        """Seconds until the next renewal is allowed; at most 0 if it is now."""
        return self._until - time.monotonic()

    def check(self) -> None:
        """Raise the last error again while no renewal is allowed."""
        if self._error is not None and self.wait_s > 0:
            raise copy_error(self._error)


class ServerToken:
    """The access token for one server and one owner of credentials."""

    def __init__(self, spec: ServerSpec, vault: Vault, subjects: SubjectTokens | None = None) -> None:
        """Take a server with a URL, and whose credentials it is used with; `subjects` are the tokens of callers."""
        assert spec.url is not None
        self.spec = spec
        self.server = spec.name
        self.url = spec.url
        self.auth = spec.auth or AuthSpec()
        self.owner = spec.owner
        self.header: str | None = None
        """The `Authorization` header to send; None for none."""
        self.fresh_until = -math.inf
        """Until when `header` is good, by the wall clock; after that `prepare` has to be called."""
        self.challenge: Challenge | None = None
        """What the server asked for when it last refused."""
        self.fetcher = Fetcher([spec.url], spec.network, exempt=self.auth.configured_urls)
        self.vault = vault
        self._subjects = subjects or SubjectTokens()
        self._raw: bytes | None = None
        self._grant: Grant | None = None
        self._replaced: list[Grant] = []
        """Grants whose tokens are still concealed."""
        self._renewal: asyncio.Task[None] | None = None
        self._loaded_at: float | None = None
        """When the vault was last read, on the monotonic clock; None before the first time."""
        self._saving: asyncio.Task[None] | None = None
        """Stores renewed tokens that could not be stored at once; they are used until then."""
        self._backoff = RenewalBackoff()
        """After renewals that failed."""
        self._refused_renewals = RenewalBackoff()
        """After renewals whose tokens the server refused."""
        self._refusal: LoginRequired | None = None
        self._refused_until = -math.inf

    @property
    def grant(self) -> Grant | None:
        """The grant as it was last read; None without a login."""
        return self._grant

    @property
    def expires_at(self) -> float | None:
        """When its login ends and a person has to log in again; None if it is renewed, or nothing is known of its end."""
        grant = self._grant
        return grant.expires_at if grant is not None and not self._may_renew(grant) else None

    def describe(self) -> str | None:
        """Return its state, as `ServerTokens.count` names them; None for a server that has asked for nothing yet."""
        if self._refusal is not None and time.time() < self._refused_until:
            return "required"
        if self.is_renewing:
            return "renewing"
        if self._backoff.wait_s > 0:
            return "failing"
        return "valid" if self._grant is not None else None

    async def prepare(self) -> None:
        """Make `header` good; raises `LoginRequired` or `UpstreamUnavailable` if a token has expired and cannot be renewed."""
        await self.load()
        grant, now = self._grant, time.time()
        if grant is None or grant.renew_at is None or now < grant.renew_at or not self._may_renew(grant):
            # An expired token that cannot be renewed is sent: only the server knows whether it still takes it.
            return
        is_spare = grant.expires_at is not None and now < grant.expires_at - min(
            SPARE_S, (grant.expires_at - grant.renew_at) / 2
        )
        if is_spare and max(self._backoff.wait_s, self._refused_renewals.wait_s) > 0:
            self.fresh_until = now + POLL_S
            return
        renewal = self._start_renewal(grant.access_token)
        if is_spare:
            # Not awaited, and looked at again soon; a renewal that fails is tried again until the token has expired.
            self.fresh_until = now + POLL_S
            return
        await _await_shared(renewal)

    async def check_start(self) -> None:
        """Raise the last `LoginRequired` again if nothing has changed since: the server need not be asked every second."""
        if self._refusal is None or time.time() >= self._refused_until:
            return
        before = self._raw
        await self.load()
        if self._raw == before:
            raise copy_error(self._refusal)

    async def load(self) -> None:
        """Read the grant from the vault; while the store cannot be reached, the one that was read last stays."""
        if self._saving is not None:
            self._use(self._raw)  # What is stored is older.
            return
        try:
            raw = await self.vault.get(self.server, self.owner, NAME)
        except StoreUnavailable:
            # A server that needs no credential goes on without the store. One in use might have been removed since.
            limit_s = OUTAGE_S if self._grant is not None else math.inf
            if self._loaded_at is None or time.monotonic() > self._loaded_at + limit_s:
                raise
            self._use(self._raw)
            return
        self._loaded_at = time.monotonic()
        self._use(raw)

    def _use(self, raw: bytes | None) -> None:
        if raw != self._raw or raw is None:
            grant = decode_grant(raw) if raw is not None else None
            if grant is not None and grant.terms.url != self.url:
                # The server's `url` was changed: another server must not get the token, also not one on the same host.
                grant = None
            if self._grant is not None:
                self._replaced.append(self._grant)
            self._raw, self._grant = raw, grant
            self.header = f"Bearer {grant.access_token}" if grant is not None else None
            if grant is not None:
                remember_secrets(form for secret in grant.secrets for form in forms_of(secret))
                self._refusal = None
            self._forget_replaced()
        until = time.time() + RELOAD_S
        renew_at = self._grant.renew_at if self._grant is not None else None
        self.fresh_until = until if renew_at is None else min(until, renew_at)

    def _forget_replaced(self) -> None:
        """Have tokens that were replaced shown again once they have expired: a server may accept them until then."""
        now = time.time()
        expired = [old for old in self._replaced if now > (old.expires_at or old.obtained_at + LIFETIME_S)]
        current = self._grant.tokens if self._grant is not None else []
        forget_secrets(
            form for old in expired for token in old.tokens if token not in current for form in forms_of(token)
        )
        self._replaced = [old for old in self._replaced if old not in expired]

    async def handle_refusal(self, status: int, challenge: str, *, used: str | None) -> bool:
        """Handle a 401, or a 403: True if the request should be sent again, False if this is not about authorization.

        `used` is the header that was refused. Raises `LoginRequired`, `UpstreamUnavailable` if no token could be had, or
        `CredentialRequired` if the caller has none to exchange.
        """
        parsed = parse_challenge(status, challenge)
        if status == 403 and not parsed.is_insufficient_scope:
            return False
        await self.load()
        if self.header != used:
            return True  # Replaced in the meantime, by a login or another gateway.
        if parsed.is_insufficient_scope:
            parsed = self._with_granted_scopes(parsed)
        self.challenge = parsed
        if not self.auth.needs_person:
            if not self._has_subject:
                raise CredentialRequired(
                    f"The server `{self.server}` is used with a token that is got in exchange for the caller's own access"
                    " token, and this caller has come without one.",
                    hint=f"call with an access token of {self.auth.subject_issuer or self.auth.issuer}, or with a new one",
                    server=self.server,
                )
            await _await_shared(self._start_obtaining(parsed))
            return True
        grant = self._grant
        if parsed.is_insufficient_scope:
            raise self.require_login("it needs more permissions than were granted")
        if grant is None:
            raise self.require_login(None if challenge else _UNEXPLAINED)
        if not self._may_renew(grant):
            raise self.require_login(grant.problem or "its token is no longer accepted")
        await _await_shared(self._start_renewal(grant.access_token))
        return True

    def may_have_expired(self, header: str | None) -> bool:
        """Whether the token of a header that was refused was replaced since, or was to be renewed by now."""
        if header != self.header:
            return True
        renew_at = self._grant.renew_at if self._grant is not None else None
        return renew_at is not None and time.time() >= renew_at

    def make_repeated_error(self) -> LoginRequired | UpstreamUnavailable:
        """Make the error for a request that was refused with a new token, too."""
        error: LoginRequired | UpstreamUnavailable
        if self.auth.needs_person:
            error = self.require_login("it refuses a new token, too")
        else:
            error = UpstreamUnavailable("it refuses the token that its authorization server has just issued")
        self._refused_renewals.note_failure(error)
        return error

    def require_login(self, reason: str | None) -> LoginRequired:
        """Make the error for a server that needs a person to log in."""
        scopes = self.wanted_scopes
        caller = f" --caller {self.owner}" if self.owner else ""
        is_step_up = self.challenge is not None and self.challenge.is_insufficient_scope
        more = "".join(f" --scope {scope}" for scope in scopes) if is_step_up else ""
        because = f": {reason}" if reason else ""
        key = "; if it takes an API key, set that in its `headers`" if reason == _UNEXPLAINED else ""
        self._refusal = LoginRequired(
            f"The server `{self.server}` requires a login{because}",
            hint=f"run `toolpost login {self.server}{caller}{more}`, then call again{key}",
            server=self.server,
            scopes=list(scopes),
        )
        self._refused_until = time.time() + RELOAD_S
        return copy_error(self._refusal)

    @property
    def wanted_scopes(self) -> Sequence[str]:
        """The scopes that a login asks for, as far as they are known before it."""
        asked = (self.challenge.scope or "").split() if self.challenge is not None else []
        return list(dict.fromkeys([*(self.auth.scopes or ()), *asked]))

    def _with_granted_scopes(self, challenge: Challenge) -> Challenge:
        """Add the scopes that were granted before: asking for the new ones alone would give the old ones up."""
        granted = self._grant.scopes if self._grant is not None else []
        return replace(challenge, scope=" ".join(dict.fromkeys([*granted, *(challenge.scope or "").split()])))

    def _may_renew(self, grant: Grant) -> bool:
        if not self.auth.needs_person:
            return self._has_subject
        return grant.refresh_token is not None and grant.problem is None

    @property
    def _has_subject(self) -> bool:
        return not self.auth.exchanges_callers_tokens or self._find_subject() is not None

    def _find_subject(self) -> str | None:
        return self._subjects.find(self.owner, self.auth.subject_issuer or self.auth.issuer)

    # Renewal

    def _start_renewal(self, refused: str) -> "asyncio.Task[None]":
        """Replace an access token, once for all who ask at the same time. Raises the last error again after failures."""
        if self._renewal is None or self._renewal.done():
            self._check_backoff()
            run = self._renew(refused) if self.auth.needs_person else self._obtain(None, refused)
            self._renewal = asyncio.create_task(run)
            self._renewal.add_done_callback(self._note_end)
        return self._renewal

    def _start_obtaining(self, challenge: Challenge) -> "asyncio.Task[None]":
        if self._renewal is None or self._renewal.done():
            self._check_backoff()
            refused = self._grant.access_token if self._grant is not None else None
            self._renewal = asyncio.create_task(self._obtain(challenge, refused))
            self._renewal.add_done_callback(self._note_end)
        return self._renewal

    def _check_backoff(self) -> None:
        self._backoff.check()
        self._refused_renewals.check()

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        # Retrieved here: a renewal ahead of time has no waiter.
        if (error := task.exception()) is None:
            self._backoff.forget()
            return
        event(_log, logging.WARNING, "token not renewed", server=self.server, reason=str(error))
        self._backoff.note_failure(error if isinstance(error, ToolpostError) else _make_late_error())

    @property
    def is_renewing(self) -> bool:
        return self._renewal is not None and not self._renewal.done()

    async def close(self) -> None:
        """Wait for a renewal in flight, and for tokens that are not stored yet: they are the only copy of the refresh token."""
        if self._renewal is not None and not self._renewal.done():
            await asyncio.wait([self._renewal], timeout=CLOSE_S)
        if (saving := self._saving) is not None:
            await asyncio.wait([saving], timeout=CLOSE_S)
            saving.cancel()

    @asynccontextmanager
    async def _renewal_lease(self, refused: str | None) -> AsyncIterator[bool]:
        """Be the only gateway that renews this credential; False if another one has replaced the refused token."""
        async with asyncio.timeout(RENEWAL_S) as wait:
            while True:
                async with self.vault.lease(self.server, self.owner, NAME, seconds=RENEWAL_S) as has_lease:
                    # Only now: the gateway that had the lease before may have stored the next token.
                    await self.load()
                    current = self._grant.access_token if self._grant is not None else None
                    if has_lease or current != refused:
                        # From here on only the requests are limited: an answer must not be lost because the turn came late.
                        wait.reschedule(None)
                        yield current == refused
                        return
                await asyncio.sleep(POLL_S)

    async def log_out(self) -> bool | None:
        """Revoke and remove the tokens; returns whether they were revoked, None if there are none.

        Waits for a renewal in flight, and lets none begin until it is done: its tokens would be neither revoked nor stored.
        """
        await load_protocol()
        from toolpost.credentials.token_requests import revoke

        async with asyncio.timeout(2 * RENEWAL_S) as wait:
            while True:
                async with self.vault.lease(self.server, self.owner, NAME, seconds=RENEWAL_S) as has_lease:
                    if has_lease:
                        wait.reschedule(None)
                        await self.load()
                        if self._grant is None:
                            return None
                        # Before they are removed: without them nothing could be revoked. They are removed in any case.
                        try:
                            is_revoked = await revoke(self._grant, self.auth, self.fetcher)
                        except (UpstreamUnavailable, BadConfiguration):
                            is_revoked = False
                        await self.vault.remove(self.server, self.owner, NAME)
                        return is_revoked
                await asyncio.sleep(POLL_S)

    async def _renew(self, refused: str) -> None:
        try:
            async with self._renewal_lease(refused) as has_lease:
                grant, raw = self._grant, self._raw
                if not has_lease or grant is None:
                    return
                if not self._may_renew(grant):
                    raise self.require_login(grant.problem)
                await self._renew_with_lease(grant, raw)
        except StoreUnavailable:
            # Nor could the lease be given back, which expires. The tokens are there.
            if self._saving is None:
                raise

    async def _renew_with_lease(self, grant: Grant, raw: bytes | None) -> None:
        await load_protocol()
        from toolpost.credentials import token_requests

        # From here to `_store(new)` a kill loses the answer, which cannot be prevented: the provider has replaced the token
        # before it tells us. The mark is stored first, so that the next gateway knows why its try is refused.
        was_interrupted = grant.renewal_began_at is not None
        marked = msgspec.structs.replace(grant, renewal_began_at=time.time())
        if not await self._store(marked, expect=raw):
            return  # Changed since it was read, by a login or a logout: that one counts.
        try:
            async with asyncio.timeout(REQUEST_S):
                new = await token_requests.renew(grant, self.auth, self.fetcher)
        except token_requests.TokenRefused as refusal:
            if refusal.is_final:
                reason = f"{_INTERRUPTED}; {refusal.message}" if was_interrupted else refusal.message
                raise await self._give_up(grant, encode_grant(marked), reason) from refusal
            await self._store(grant, expect=encode_grant(marked))
            if refusal.is_about_client:
                # The operator may set another secret, and the refresh token is as good as before.
                raise self.require_login(refusal.message) from refusal
            raise
        except UpstreamUnavailable as error:
            # The mark stays if the provider may have seen the request, and replaced the token.
            if not error.was_sent:
                await self._store(grant, expect=encode_grant(marked))
            raise
        try:
            await self._store(new, expect=encode_grant(marked))
        except Exception as error:  # noqa: BLE001 (whatever failed, this is the only copy of the new tokens)
            event(_log, logging.WARNING, "new tokens not stored yet", server=self.server, reason=str(error))
            self._use(encode_grant(new))
            self._saving = asyncio.create_task(self._keep_saving(new, expect=encode_grant(marked)))
        event(_log, logging.INFO, "token renewed", server=self.server, owner=self.owner)

    async def _keep_saving(self, grant: Grant, *, expect: bytes) -> None:
        """Store tokens as soon as the store can be reached again."""
        is_done = False
        while not is_done:
            await asyncio.sleep(SAVE_S)
            with contextlib.suppress(Exception):  # The first failure was logged.
                await self.vault.put(self.server, self.owner, NAME, encode_grant(grant), expect=expect)
                is_done = True
        self._saving = None

    async def _give_up(self, grant: Grant, raw: bytes | None, reason: str) -> LoginRequired:
        """Record that a refresh token is of no more use, so that no gateway tries it again."""
        spent = msgspec.structs.replace(grant, refresh_token=None, problem=reason, renewal_began_at=None)
        await self._store(spent, expect=raw)
        return self.require_login(reason)

    async def _obtain(self, challenge: Challenge | None, refused: str | None) -> None:
        """Get a token by a grant that needs no person."""
        await load_protocol()
        from toolpost.credentials.authorization_servers import choose_scopes, discover
        from toolpost.credentials.token_requests import TokenRefused, obtain

        async with self._renewal_lease(refused) as has_lease:
            if not has_lease:
                return
            raw, known = self._raw, self._grant
            async with asyncio.timeout(REQUEST_S):
                found = await discover(self.url, self.auth, challenge, self.fetcher)
                if challenge is not None and challenge.is_insufficient_scope:
                    scope = challenge.scope
                else:
                    scope = choose_scopes(found, self.auth, challenge)
                if challenge is None and known is not None:
                    scope = known.scope
                auth = self.auth
                if auth.exchanges_callers_tokens:
                    # Not kept: the next exchange takes the token with which the caller has come by then.
                    auth = replace(auth, subject_token=self._find_subject())
                try:
                    new = await obtain(found, auth, self.fetcher, scope=scope)
                except TokenRefused as refusal:
                    if auth.exchanges_callers_tokens and auth.subject_token and not refusal.is_about_client:
                        self._subjects.drop(self.owner, auth.subject_token)
                    raise
            await self._store(new, expect=raw)

    async def _store(self, grant: Grant, *, expect: bytes | None) -> bool:
        if await self.vault.put(self.server, self.owner, NAME, raw := encode_grant(grant), expect=expect):
            self._use(raw)
            return True
        await self.load()
        return False


async def load_protocol() -> None:
    """Import what needs the SDK, in a thread: it takes a second, and calls go on."""
    await import_in_thread("toolpost.credentials.token_requests")


async def _await_shared(task: "asyncio.Task[None]") -> None:
    """Await a task that others await too; a cancelled waiter does not cancel it."""
    await asyncio.wait([task])
    error = task.exception()
    if isinstance(error, TimeoutError):
        raise _make_late_error() from error
    if isinstance(error, ToolpostError):
        raise copy_error(error)
    if error is not None:
        raise error


def _make_late_error() -> UpstreamUnavailable:
    return UpstreamUnavailable("its token could not be renewed in time")


class ServerTokens:
    """The access tokens of all servers and owners of one gateway."""

    def __init__(self, vault: Vault, subjects: SubjectTokens | None = None) -> None:
        """`subjects` has the tokens of callers, for servers that take one in exchange."""
        self.vault = vault
        self.subjects = SubjectTokens() if subjects is None else subjects
        self._known: dict[tuple[str, str], ServerToken] = {}

    def of(self, spec: ServerSpec) -> ServerToken | None:
        """Return the token of a server and its owner; None for a server that needs none: it has no URL, or a header."""
        headers = [*spec.headers, *spec.own_headers]
        if spec.url is None or (spec.auth is None and any(name.lower() == "authorization" for name in headers)):
            return None
        known = self._known.get((spec.name, spec.owner))
        if known is None or not known.spec.reaches_like(spec):
            known = self._known[spec.name, spec.owner] = ServerToken(spec, self.vault, self.subjects)
        return known

    def __iter__(self) -> Iterator[ServerToken]:
        """Iterate over what is known of all servers and owners."""
        return iter([*self._known.values()])

    def count(self) -> dict[str, int]:
        """Count logins by state: `valid`, `renewing`, `failing` to be renewed, `required` where a person has to log in."""
        found = {"valid": 0, "renewing": 0, "failing": 0, "required": 0}
        for server_token in self._known.values():
            if (state := server_token.describe()) is not None:
                found[state] += 1
        return found

    def forget(self, spec: ServerSpec) -> None:
        """Drop what is known of an owner that has not called for long; not while a token is being renewed."""
        known = self._known.get((spec.name, spec.owner))
        if known is not None and not known.is_renewing:
            del self._known[spec.name, spec.owner]

    async def aclose(self) -> None:
        """Wait for renewals in flight, for `CLOSE_S` at most."""
        await asyncio.gather(*(each.close() for each in self._known.values()))
