"""The authorization server: the provider for the SDK's handlers, and the decisions of the pages.

A request of a client becomes a row that waits for a person (`authorize`). The pages find out who it is (`sign_in`) and what is
allowed (`approve`), which makes a grant and its code. Code and refresh tokens are exchanged once; one that comes a second time
revokes its grant, and so all tokens of it.
"""

import base64
import binascii
import contextvars
import hmac
import logging
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec
from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    IdentityAssertionParams,
    RefreshToken,
    RegistrationError,
    TokenError,
    construct_redirect_uri,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyUrl, InstanceOf

from toolpost import CallerId
from toolpost.base import event
from toolpost.contracts import StoreUnavailable
from toolpost.endpoints.http import MCP_PATH, Claims, KnownCaller, Login, Roster, view_of
from toolpost.parts import TokenIssuer
from toolpost.parts.authorization_server import records
from toolpost.parts.authorization_server.clients import Clients, LoginClient, find_redirect_problem
from toolpost.parts.authorization_server.passphrase import PassphraseCheck, TooManyTries
from toolpost.parts.authorization_server.records import (
    Identity,
    LoginInfo,
    LoginRequest,
    NewTokens,
    Params,
    Token,
    Which,
    hash_of,
)
from toolpost.parts.authorization_server.scopes import ALL, READ, SCOPES, is_read_only, select_scopes

if TYPE_CHECKING:
    from starlette.requests import Request

    from toolpost.parts.authorization_server.settings import LoginSettings
    from toolpost.store import Store

_log = logging.getLogger("toolpost.login")

ACCESS: Final = "tpa-"
REFRESH: Final = "tpr-"
CHECKED_S: Final = 30.0
"""How long a gateway accepts an access token without a look into the store, if it is not told that it was revoked."""

TOPIC: Final = "login revoked"
"""Rung when logins were revoked, for the other gateways of the store."""

CONSENT_PATH: Final = "/authorize/consent"
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_STATE_LIMIT: Final = 4096

browser: contextvars.ContextVar[str] = contextvars.ContextVar("browser")
"""The cookie of the browser whose authorization request is handled: the SDK passes no request on."""

token_resource: contextvars.ContextVar[str | None] = contextvars.ContextVar("token_resource", default=None)
"""The `resource` of a token request, which the SDK drops."""


class StoredToken(RefreshToken):
    """A refresh token, and its row."""

    row: InstanceOf[Token]


class StoredCode(AuthorizationCode):
    """A code, and its row."""

    row: InstanceOf[Token]


class StoredAccess(AccessToken):
    """An access token, and its row."""

    row: InstanceOf[Token]


class AuthorizationServer(TokenIssuer):
    """Issues tokens for callers. Implements the SDK's `OAuthAuthorizationServerProvider` and the kernel's `TokenIssuer`."""

    def __init__(self, store: "Store", clients: Clients, settings: "LoginSettings", *, url: str, key: bytes) -> None:
        """`key` is one that the gateways of the store share."""
        self.issuer: str = url
        self.resource: str = f"{url}{MCP_PATH}"
        self.scopes: tuple[str, ...] = SCOPES
        self.clients = clients
        self._scripts = store.scripts
        self._wakeups = store.wakeups
        self._settings = settings
        self._key = key
        self._passphrases = PassphraseCheck()
        self.roster: Roster | None = None
        """The callers, once HTTP is served."""

    # Tokens at the endpoint

    def hash_secrets(self, secrets: str) -> str:
        """Return the keyed hash of a caller's passphrase and token, which is stored with each login."""
        return hmac.digest(self._key, f"secrets {secrets}".encode(), "sha256").hex()

    def has_issued(self, token: bytes) -> bool:
        """Whether a token has the form of those that are issued here; a refresh token has, and is no access token."""
        return token.startswith((ACCESS.encode(), REFRESH.encode()))

    async def find_claims(self, token: bytes) -> Claims | None:
        """Return the claims of an access token; None if it is not valid, or no longer."""
        row = await self._find(token.decode("latin-1"), "access")
        if row is None:
            return None
        if row.is_use_due:
            await self._note_use(row.grant)
        is_whole = row.params.resource == self.resource
        checked_until = self._scripts.wall(row.expires_at)
        return replace(
            _make_claims(row.identity, row.grant, row.scopes),
            expires_at=min(checked_until, time.time() + CHECKED_S),
            audiences=None if is_whole else frozenset({row.params.resource}),
        )

    async def _note_use(self, grant: str) -> None:
        try:
            await self._scripts.run(lambda: records.note_use(grant))
        except StoreUnavailable as error:
            # The call itself may well work, and the next one notes it.
            event(_log, logging.WARNING, "use of a login not noted", reason=str(error))

    # The SDK's provider

    async def get_client(self, client_id: str) -> LoginClient | None:
        """Return a client, or None."""
        return await self.clients.find(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Register a client; raises `RegistrationError` for redirect URIs that codes must not be sent to."""
        if not self._settings.registration:
            raise RegistrationError("invalid_client_metadata", "clients cannot register themselves here")
        uris = client_info.redirect_uris or []
        if len(uris) > 20 or len(client_info.model_dump_json()) > 16_384:
            raise RegistrationError("invalid_client_metadata", "the metadata is too large")
        if problem := next(filter(None, map(find_redirect_problem, uris)), None):
            raise RegistrationError("invalid_redirect_uri", problem)
        # RFC 7591 lets the server replace this: secrets come in the form, which the SDK's handler reads in any case.
        if client_info.token_endpoint_auth_method == "client_secret_basic":  # noqa: S105 (the name of a method)
            client_info.token_endpoint_auth_method = "client_secret_post"  # noqa: S105
        client_info.scope = " ".join(self.scopes)
        client_info.grant_types = ["authorization_code", "refresh_token"]
        await self.clients.register(client_info)

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Keep the request, bound to the browser, and return the address of the page that asks the person."""
        if not _CHALLENGE.fullmatch(params.code_challenge):
            raise AuthorizeError("invalid_request", "code_challenge must be that of the method S256")
        if params.state is not None and len(params.state) > _STATE_LIMIT:
            raise AuthorizeError("invalid_request", "the state is too long")
        kept = Params(
            redirect_uri=str(params.redirect_uri),
            has_redirect_uri=params.redirect_uri_provided_explicitly,
            code_challenge=params.code_challenge,
            scopes=params.scopes or select_scopes(None),
            resource=self._find_resource(params.resource),
            state=params.state,
        )
        request = secrets.token_urlsafe(24)
        owner = hash_of(browser.get())
        await self._scripts.run(lambda: records.insert_request(hash_of(request), owner, client.client_id, kept))
        return f"{self.issuer}{CONSENT_PATH}?request={request}"

    def _find_resource(self, named: str | None) -> str:
        """Return the endpoint that a token is for; raises for one that is not of this gateway."""
        if named is None or named in (self.resource, f"{self.resource}/", self.issuer, f"{self.issuer}/"):
            return self.resource
        path = f"{MCP_PATH}{named.removeprefix(self.resource)}"
        if not named.startswith(f"{self.resource}/") or view_of(path) is None or len(named) > 2048:
            raise AuthorizeError("invalid_target", f"the resource must be {self.resource}")
        return named

    def _is_for(self, row: Token, named: str) -> bool:
        try:
            return self._find_resource(named) == row.params.resource
        except AuthorizeError:
            return False

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> StoredCode | None:
        """Return a code, used or not: `exchange_authorization_code` finds out."""
        row = await self._find(authorization_code, "code")
        if row is None or row.client != client.client_id:
            return None
        return StoredCode(
            code=authorization_code,
            scopes=row.scopes,
            expires_at=self._scripts.wall(row.expires_at),
            client_id=row.client,
            code_challenge=row.params.code_challenge,
            redirect_uri=AnyUrl(row.params.redirect_uri),
            redirect_uri_provided_explicitly=row.params.has_redirect_uri,
            resource=row.params.resource,
            row=row,
        )

    async def exchange_authorization_code(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002 (the code is the client's already)
        authorization_code: StoredCode,
    ) -> OAuthToken:
        """Exchange a code, once."""
        return await self._exchange(authorization_code.row, authorization_code.row.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> StoredToken | None:
        """Return a refresh token, used or not: `exchange_refresh_token` finds out."""
        row = await self._find(refresh_token, "refresh")
        if row is None or row.client != client.client_id:
            return None
        expires_at = int(self._scripts.wall(row.expires_at)) + 1
        return StoredToken(token=refresh_token, client_id=row.client, scopes=row.scopes, expires_at=expires_at, row=row)

    async def exchange_refresh_token(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002 (the token is the client's already)
        refresh_token: StoredToken,
        scopes: list[str],
    ) -> OAuthToken:
        """Exchange a refresh token, once."""
        if self.find_caller(refresh_token.row.identity) is None:
            await self.revoke(refresh_token.row.grant)
            raise TokenError("invalid_grant", "the person may no longer log in here")
        return await self._exchange(refresh_token.row, scopes)

    async def load_access_token(self, token: str) -> StoredAccess | None:
        """Return an access token, to be revoked."""
        row = await self._find(token, "access")
        return None if row is None else StoredAccess(token=token, client_id=row.client, scopes=row.scopes, row=row)

    async def revoke_token(self, token: StoredAccess | StoredToken) -> None:
        """Revoke a token, with all others of its grant."""
        await self.revoke(token.row.grant)

    async def exchange_identity_assertion(
        self,
        client: OAuthClientInformationFull,  # noqa: ARG002 (the SDK's interface)
        params: IdentityAssertionParams,  # noqa: ARG002
    ) -> OAuthToken:
        """Refuse: identity assertions are not taken."""
        raise TokenError("unsupported_grant_type", "identity assertions are not taken here")

    async def revoke(self, grant: str) -> None:
        """Revoke all tokens of a grant, at all gateways of the store."""
        await self._scripts.run(lambda: records.revoke(grant))
        self._end([grant])

    async def revoke_all(self, which: Which) -> list[LoginInfo]:
        """Revoke the logins that are meant, at all gateways of the store, and return them."""
        revoked = await self._scripts.run(lambda: records.revoke_all(which))
        self._end([one.id for one in revoked])
        return revoked

    async def list_logins(self, which: Which) -> list[LoginInfo]:
        """Return the logins that hold, the newest first."""
        return await self._scripts.read(lambda: records.list_logins(which))

    async def follow_revocations(self) -> None:
        """End the logins that other gateways, or a command, have revoked. Runs until it is cancelled."""
        async with self._wakeups.open_listener(TOPIC) as listener:
            while True:
                await listener.wait()
                try:
                    ended = await self._scripts.read(lambda: records.list_revoked(2 * CHECKED_S))
                except StoreUnavailable as error:
                    # No token is accepted for longer than CHECKED_S without a look into the store.
                    event(_log, logging.WARNING, "revoked logins not read", reason=str(error))
                    continue
                if self.roster is not None:
                    self.roster.end_logins(ended)

    def _end(self, grants: list[str]) -> None:
        if self.roster is not None:
            self.roster.end_logins(grants)
        self._wakeups.ring(TOPIC)

    async def _exchange(self, row: Token, scopes: list[str]) -> OAuthToken:
        if (named := token_resource.get()) is not None and not self._is_for(row, named):
            raise TokenError("invalid_target", "the resource differs from that of the consent")
        access, refresh = (prefix + secrets.token_urlsafe(32) for prefix in (ACCESS, REFRESH))
        issue = NewTokens(
            access=hash_of(access),
            refresh=hash_of(refresh),
            access_s=self._settings.access_s,
            login_s=self._settings.login_s,
            scopes=scopes,
        )
        # Not repeated if the connection is lost during the commit: a second run would take the first for a thief.
        valid_s = await self._scripts.run(lambda: records.exchange(row, issue), repeatable=False)
        if valid_s is None:
            event(_log, logging.WARNING, "used twice or too late, its login ends", kind=row.kind, client=row.client)
            self._end([row.grant])
            raise TokenError("invalid_grant", f"the {'code' if row.kind == 'code' else 'refresh token'} is not valid")
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=int(valid_s), scope=" ".join(scopes))

    async def _find(self, secret: str, kind: records.Kind) -> Token | None:
        digest = hash_of(secret)
        return await self._scripts.read(lambda: records.find_token(digest, kind))

    # The pages

    async def show(self, request: str, cookie: str) -> tuple[LoginRequest, str] | None:
        """Return a request of this browser and the token for the form on its page; None if there is none."""
        form = secrets.token_urlsafe(24)
        found = await self._scripts.run(lambda: records.show_request(hash_of(request), hash_of(cookie), hash_of(form)))
        return None if found is None else (found, form)

    async def take_form(self, request: str, cookie: str, form: str) -> LoginRequest | None:
        """Return the request whose form was sent, once; None if the form is not that of its page."""
        return await self._scripts.run(
            lambda: records.take_form(hash_of(request), hash_of(cookie), hash_of(form)), repeatable=False
        )

    async def sign_in(
        self, request: LoginRequest, name: str, passphrase: str, *, address: str, remembered: str
    ) -> tuple[str, str] | None:
        """Note who a person is, by passphrase or token; None if they are not who they say, or were tried too often.

        Raises `TooManyTries` if others are being compared; this one is not counted then.

        Returns two cookies that their browser has from now on: its own, and the one by which it is remembered
        (`remembered`, if it has one already), so that strangers who try the same name do not keep it out.
        """
        callers = self.roster.members.callers if self.roster is not None else ()
        known = next((each for each in callers if each.name == name), None)
        attempt, is_remembered = None, False
        if known is not None:
            is_remembered = hmac.compare_digest(remembered, self._remember(known, remembered.partition(".")[0]))
            source = f"browser {remembered}" if is_remembered else f"address {address}"
            attempt = self._passphrases.take_try(known.name, source, is_known=is_remembered)
        # Also where it cannot count: how long the answer takes must not tell whether a name exists or is limited.
        try:
            is_right = await self._passphrases.check(
                passphrase, known.passphrase if known else None, is_known=is_remembered
            )
        except TooManyTries:
            if known is not None and attempt is not None:
                self._passphrases.give_back(known.name, attempt)
            raise
        if known is not None and known.has_token(passphrase):
            is_right = True
        if known is None or attempt is None or not is_right:
            # A name that is not known may be a passphrase in the wrong field.
            event(
                _log,
                logging.WARNING,
                "login failed",
                caller=known.name if known else None,
                is_limited=known is not None and attempt is None,
            )
            await self._scripts.run(lambda: records.note_attempt(request.id))
            return None
        self._passphrases.give_back(known.name, attempt)
        cookie = await self._set_identity(request, Identity(caller=known.name, secrets_hash=known.secrets_hash))
        if cookie is None:
            return None
        return cookie, remembered if is_remembered else self._remember(known, secrets.token_hex(16))

    def _remember(self, known: KnownCaller, nonce: str) -> str:
        """Return the cookie of a browser in which this caller has logged in; another one once its secrets have changed."""
        text = f"browser {nonce} {known.secrets_hash} {known.name}"
        return f"{nonce}.{hmac.digest(self._key, text.encode(), 'sha256').hex()}"

    async def identify(self, request: LoginRequest, identity: Identity) -> str | None:
        """Note who a person of the OpenID Connect provider is; None if no caller stands for them.

        Returns the cookie that their browser has from now on.
        """
        if self.find_caller(identity) is None:
            event(_log, logging.WARNING, "login failed", issuer=identity.issuer, reason="mapped to no caller")
            return None
        return await self._set_identity(request, identity)

    async def _set_identity(self, request: LoginRequest, identity: Identity) -> str | None:
        # A new cookie, so that one who put the first into the browser does not have that of a person who has logged in.
        cookie = secrets.token_urlsafe(32)
        is_set = await self._scripts.run(lambda: records.set_identity(request, identity, hash_of(cookie)))
        return cookie if is_set else None

    async def approve(self, request: LoginRequest, *, only_reads: bool = False) -> str | None:
        """Make a grant, and return the address with its code; None if the request is over or no one has logged in.

        `only_reads` grants less than the client asks for, which its token response says (RFC 6749, 3.3).
        """
        if only_reads:
            request = replace(request, params=msgspec.structs.replace(request.params, scopes=[READ]))
        identity = request.identity
        if identity is None or (caller := self.find_caller(identity)) is None:
            return None
        # The caller is matched once more: rules may have changed while the person read the page.
        grant, code = secrets.token_hex(16), secrets.token_urlsafe(32)
        # Not repeated after a lost connection: the first run may have deleted the request, and its code be valid.
        if not await self._scripts.run(
            lambda: records.approve(request, identity, caller[1], grant, hash_of(code)), repeatable=False
        ):
            return None
        event(_log, logging.INFO, "login", caller=caller[1], client=request.client)
        return self._redirect(request, code=code)

    async def deny(self, request: LoginRequest) -> str | None:
        """End a request, and return the address that tells the client so; None if it was over."""
        if not await self._scripts.run(lambda: records.delete_request(request.id)):
            return None
        return self._redirect(request, error="access_denied")

    def _redirect(self, request: LoginRequest, **params: str) -> str:
        # `iss` is how a client of several servers notices that an answer is from another one (RFC 9207).
        return construct_redirect_uri(
            request.params.redirect_uri, **params, state=request.params.state, iss=self.issuer
        )

    def find_caller(self, identity: Identity) -> tuple[KnownCaller, CallerId] | None:
        """Return the caller that a person is now; None if they may no longer log in."""
        if self.roster is None:
            return None
        claims = _make_claims(identity)
        known = self.roster.members.match(claims)
        return None if known is None else (known, known.id_for(claims))


def _make_claims(identity: Identity, grant: str = "", scopes: Sequence[str] = (ALL,)) -> Claims:
    """Return the claims by which a person is matched to a caller, at consent and for each token alike.

    Clients and scopes are those of this server, chosen by the client that registers: they must not match what `[callers]` says of
    clients and scopes of another issuer. Scopes narrow what the caller sees, once it is known.
    """
    return Claims(
        subject=identity.claims.get("sub"),
        client=None,
        scopes=frozenset(),
        expires_at=0.0,
        issuer=identity.issuer,
        all=identity.claims,
        login=Login(
            grant=grant,
            caller=identity.caller,
            secrets_hash=identity.secrets_hash,
            is_read_only=is_read_only(scopes),
        ),
    )


class HashedSecrets(ClientAuthenticator):
    """Authenticates clients at the token endpoint by the hashes of their secrets; the SDK's would need the secrets."""

    def __init__(self, server: AuthorizationServer) -> None:
        super().__init__(server)
        self._server = server

    async def authenticate_request(self, request: "Request") -> LoginClient:
        """Return the client; raises `AuthenticationError`."""
        form = await request.form()
        named, secret = str(form.get("client_id") or ""), form.get("client_secret")
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            try:
                user, _, secret = base64.b64decode(credentials, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError) as error:
                raise AuthenticationError("The credentials are malformed") from error
            if user != named:
                raise AuthenticationError("The client_id differs from that of the credentials")
        client = await self._server.get_client(named) if 0 < len(named) <= 2048 else None
        if client is None:
            raise AuthenticationError("The client is not known")
        if client.secret_hash is not None and not (
            isinstance(secret, str) and secrets.compare_digest(hash_of(secret), client.secret_hash)
        ):
            raise AuthenticationError("The client's secret is wrong")
        return client


def metadata_of(server: AuthorizationServer, settings: "LoginSettings") -> bytes:
    """Return the metadata of RFC 8414. Not the SDK's model, which would write the issuer differently than it is."""
    url = server.issuer
    methods = ["none", "client_secret_post"]
    document = {
        "issuer": url,
        "authorization_endpoint": f"{url}/authorize",
        "token_endpoint": f"{url}/token",
        "revocation_endpoint": f"{url}/revoke",
        "scopes_supported": list(server.scopes),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": methods,
        "revocation_endpoint_auth_methods_supported": methods,
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": settings.client_documents,
    }
    if settings.registration:
        document["registration_endpoint"] = f"{url}/register"
    return msgspec.json.encode(document)
