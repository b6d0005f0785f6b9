"""Logins through the gateway: whose they are, the address that a person opens, and calls that wait for them.

A call that needs a login has a caller, and the browser in which the person logs in has none: it sends no token. So the address
carries a ticket, signed with a key that the gateways of a store share, that names the server and the caller. It is valid for ten
minutes, for the first browser that opens it, and for one completed login. Agents get the address without a ticket: they act on
what others have written, and could pass it on.

The page behind it says whose login it is going to be; the authorization URL is on that page only, and the redirect is accepted
only from the browser that has seen it.
"""

import asyncio
import base64
import binascii
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

import msgspec

from toolpost.base.caller import Caller, owner_of
from toolpost.base.events import event
from toolpost.contracts.errors import Forbidden, LoginRequired, NotFound
from toolpost.credentials.grant import Grant
from toolpost.credentials.login_flow import (
    PENDING_S,
    LoginAttempt,
    LoginFailed,
    begin_login,
    check_pending,
    check_ticket,
    finish_login,
    read_state,
)
from toolpost.credentials.probe import find_challenge
from toolpost.credentials.server_tokens import ServerToken, ServerTokens
from toolpost.upstreams.notifications import ELICITATION_COMPLETE
from toolpost.upstreams.server_requests import ELICITATION, ClientChannel
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.transport import ServerRefused, encode

_log = logging.getLogger("toolpost.oauth")

PATH: Final = "/login"
CALLBACK: Final = f"{PATH}/callback"

_POLL_S: Final = 0.5
_SIGNATURE_BYTES: Final = 32


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """The parts of a login's address."""

    server: str
    owner: str
    """Whose credential it becomes; empty for one that all callers share."""
    until: float
    id: str


@dataclass(frozen=True, kw_only=True)
class FinishedLogin:
    """A login that has just been completed."""

    server: str
    owner: str
    grant: Grant


class GatewayLogins:
    """The logins of one gateway."""

    def __init__(
        self,
        server_tokens: ServerTokens,
        specs: Callable[[], Mapping[str, ServerSpec]],
        key: bytes,
        *,
        on_login: Callable[[str, str], None],
    ) -> None:
        """`specs` returns the servers as they are configured now; `key` signs tickets.

        `on_login` is called with the server and the owner of a login that was completed here.
        """
        self.base_url: str | None = None
        """Where browsers reach this gateway; None while it serves no HTTP."""
        self.vault = server_tokens.vault
        self._server_tokens = server_tokens
        self._specs = specs
        self._key = key
        self._done = asyncio.Event()
        self._on_login = on_login

    def find_owner(self, server: str, caller: Caller) -> str:
        """Return the owner of the credential that a caller's login becomes.

        Raises `NotFound` for a server that is not there, `Forbidden` for a caller who may not log in for all.
        """
        spec = self._specs().get(server)
        if spec is None or spec.url is None:
            raise NotFound(
                f"There is no server `{server[:128]}` to log in to", hint="`toolpost servers` shows which there are"
            )
        if spec.credentials == "caller":
            return owner_of(caller)
        if not caller.is_admin:
            # Otherwise any caller could have all calls of others made with its own account.
            raise Forbidden(
                f"All callers share the login to `{server}`: only a caller with `admin = true` may replace it",
                hint=f'an operator can run `toolpost login {server}`, or set `credentials = "caller"` for this server',
            )
        return ""

    def make_url(self, server: str, caller: Caller) -> str | None:
        """Return the address at which this caller can log in to a server; None if there is none."""
        if self.base_url is None:
            return None
        try:
            owner = self.find_owner(server, caller)
        except (NotFound, Forbidden):
            return None
        url = f"{self.base_url}{PATH}/{quote(server)}"
        if caller.thread is not None or caller.transport == "agent":
            return url
        text = msgspec.json.encode(Ticket(server, owner, time.time() + PENDING_S, secrets.token_urlsafe(16)))
        ticket = base64.urlsafe_b64encode(self._sign(text) + text).decode().rstrip("=")
        return f"{url}?ticket={ticket}"

    def add_url(self, required: LoginRequired, server: str, caller: Caller) -> LoginRequired:
        """Return the error with the address at which this caller can log in; as it is if there is none."""
        return _with_url(required, self.make_url(server, caller))

    def read_ticket(self, text: str) -> Ticket:
        """Verify a ticket; raises `LoginFailed`."""
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if not hmac.compare_digest(raw[:_SIGNATURE_BYTES], self._sign(raw[_SIGNATURE_BYTES:])):
            raise LoginFailed("This address of a login is not valid", hint="make the call again for a new one")
        ticket = msgspec.json.decode(raw[_SIGNATURE_BYTES:], type=Ticket)
        if ticket.until < time.time():
            raise LoginFailed("This address of a login has expired", hint="make the call again for a new one")
        return ticket

    async def begin(self, server: str, owner: str, *, browser: str, ticket: Ticket | None = None) -> LoginAttempt:
        """Begin a login; `browser` is a secret that the browser has to show at its end.

        Raises as `begin_login` does, and `LoginFailed` for a ticket that is no longer valid.
        """
        spec, server_token = self._find(server, owner)
        if ticket is not None:
            await check_ticket(self.vault, server, owner, ticket.id, browser, bind=False)
        if server_token.challenge is None:
            server_token.challenge = await find_challenge(spec, server_token)
        attempt = await begin_login(
            server_token,
            self.vault,
            redirect_uri=f"{self.base_url}{CALLBACK}/{quote(server)}",
            browser=browser,
            ticket=ticket.id if ticket is not None else None,
        )
        if ticket is not None:
            # Last: a browser that gets an error page does not get the cookie, and must be able to come back.
            await check_ticket(self.vault, server, owner, ticket.id, browser, bind=True)
        return attempt

    async def finish(self, place: str, parameters: Mapping[str, str], *, browser: str | None) -> FinishedLogin:
        """Complete the login that a redirect belongs to; raises as `finish_login` does.

        `place` is the server in the path of the redirect.
        """
        server, owner = read_state(parameters)
        if server != place:
            # The code of another authorization server, which would be sent to this one (mix-up). Each server has a redirect
            # URI of its own because many authorization servers do not name themselves in the redirect (RFC 9207).
            raise LoginFailed("The redirect of the login belongs to another server", hint="begin the login again")
        # First: whatever is made for an owner stays, and a forged state can name any.
        await check_pending(self.vault, server, owner, parameters["state"])
        _, server_token = self._find(server, owner)
        # A browser without the secret must not complete a login, and must not find out whether there is one.
        grant = await finish_login(server_token, self.vault, parameters, browser=browser or "")
        server_token.challenge = None
        event(_log, logging.INFO, "logged in", server=server, owner=owner, issuer=grant.terms.issuer)
        self._done.set()
        self._done = asyncio.Event()
        self._on_login(server, owner)
        return FinishedLogin(server=server, owner=owner, grant=grant)

    def _find(self, server: str, owner: str) -> tuple[ServerSpec, ServerToken]:
        spec = self._specs().get(server)
        spec = replace(spec, owner=owner) if spec is not None else None
        server_token = self._server_tokens.of(spec) if spec is not None else None
        if spec is None or server_token is None or not server_token.auth.needs_person:
            raise LoginFailed(
                f"There is nothing to log in to at `{server[:128]}`", hint="`toolpost servers` shows which there are"
            )
        return spec, server_token

    # Calls

    async def wait_for_login(
        self,
        required: LoginRequired,
        spec: ServerSpec,
        caller: Caller,
        client_channel: ClientChannel | None,
        *,
        limit_s: float,
    ) -> None:
        """Have the caller's client ask the person to log in, and return once that is done.

        Raises `LoginRequired`, with the address, if the client cannot ask, the person declines, or it takes longer than
        `limit_s` seconds.
        """
        url = self.make_url(spec.name, caller)
        error = _with_url(required, url)
        if url is None or client_channel is None or not _takes_urls(client_channel):
            raise error from required
        owner = self.find_owner(spec.name, caller)
        _, server_token = self._find(spec.name, owner)
        before = server_token.grant
        elicitation = {"elicitationId": secrets.token_urlsafe(16)}
        request = elicitation | {"mode": "url", "url": url, "message": f"Log in to {spec.name} to go on."}
        try:
            answer = msgspec.json.decode(await client_channel.ask(ELICITATION, encode(request)))
        except (ServerRefused, msgspec.DecodeError) as refusal:
            raise error from refusal
        if not isinstance(answer, dict) or answer.get("action") != "accept":
            raise error from required
        try:
            async with asyncio.timeout(limit_s):
                await self._wait_for_grant(server_token, before)
        except TimeoutError:
            raise error from required
        client_channel.tell(ELICITATION_COMPLETE, encode(elicitation))

    async def _wait_for_grant(self, server_token: ServerToken, before: Grant | None) -> None:
        while True:
            done = self._done
            await server_token.load()
            grant = server_token.grant
            if (
                grant is not None
                and grant.problem is None
                and (before is None or grant.obtained_at > before.obtained_at)
            ):
                return
            # The login may be completed at another gateway, or by `toolpost login`.
            try:
                async with asyncio.timeout(_POLL_S):
                    await done.wait()
            except TimeoutError:
                continue

    def _sign(self, text: bytes) -> bytes:
        return hmac.digest(self._key, text, "sha256")


def _takes_urls(client_channel: ClientChannel) -> bool:
    declared = client_channel.capabilities.get("elicitation")
    return isinstance(declared, dict) and isinstance(declared.get("url"), dict)


def _with_url(required: LoginRequired, url: str | None) -> LoginRequired:
    if url is None:
        return required
    return LoginRequired(
        required.message,
        hint="open `details.url` in a browser and log in, then call again",
        **required.details,
        url=url,
    )
