"""People sign in to the console at the OpenID Connect provider of the authorization server.

    page      POST /api/console/sign-in {"sessionSecretHash": "…", "to": "/servers"}  ->  {"location"}, a cookie
    browser   goes to the provider, and comes back with a code and the state
    browser   GET  /api/console/sign-in/callback  ->  303 to /servers, the cookie of the session
    page      GET  /api/console/…  Cookie: …, X-Toolpost-Session-Secret: of which it sent the hash

The page makes the secret of the session before, and keeps it where pages of this port alone can read it: a sign-in that another
page began gives this browser nothing. Begun sign-ins are not stored: the cookie is signed, and has the state, whose code the
provider takes once.
"""

import base64
import hmac
import logging
import re
import secrets
import time
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from toolpost import Forbidden, ToolpostError
from toolpost.base import event
from toolpost.contracts import BadConfiguration, InvalidRequest
from toolpost.endpoints.http import (
    STATUSES,
    Admission,
    Claims,
    HttpContext,
    HttpRequest,
    read_cookies,
    send_json,
)
from toolpost.parts.console.people import PeopleSessions, SignedIn
from toolpost.parts.console.sessions import API_PATH, check_same_origin
from toolpost.parts.console.settings import RoleSettings
from toolpost.protocol import encode

_log = logging.getLogger("toolpost.console")

SIGN_IN_PATH: Final = f"{API_PATH}/sign-in"
CALLBACK_PATH: Final = f"{SIGN_IN_PATH}/callback"
PROBLEM_PATH: Final = "/#sign-in="
"""The page that gives the reason of a failed sign-in."""

SIGN_IN_KEY: Final = "console sign-in"
"""The name of the key that signs what was begun."""

BEGUN_S: Final = 600
FRESH_S: Final = 300.0
"""How long ago a person may have signed in who decides about commands that the gateway runs."""

SKEW_S: Final = 60.0
"""How far the provider's clock may be ahead."""

CHECKED_S: Final = 10.0
"""How long a session is taken for valid without a look into the store: a stream ends so long after it at most."""

BODY_LIMIT: Final = 4 * 1024
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_PATH: Final = re.compile(r"/(?:[\x21-\x5b\x5d-\x7e]{0,1000})")


class _BeginBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    session_secret_hash: str
    """The SHA-256 of the session secret, in hexadecimal digits."""
    to: str = "/"
    """Where the browser goes afterwards."""
    fresh: bool = False
    """Whether to sign in even if the provider knows the person already."""


class _Begun(msgspec.Struct, kw_only=True):
    state: str
    secret_hash: str
    to: str
    fresh: bool
    until: float


class Place(NamedTuple):
    """What a session is bound to: gateways with another address or provider may share the store."""

    url: str
    """The public URL of the gateway."""
    issuer: str


class People:
    """Who is signed in to the console of a gateway, and how they come to be."""

    def __init__(self, sessions: PeopleSessions, roles: RoleSettings, key: bytes) -> None:
        """`key` is one that the gateways of the store share."""
        self._sessions = sessions
        self._roles = roles
        self._key = key
        self._http: HttpContext | None = None

    def serve(self, http: HttpContext) -> None:
        """Set what is known only when HTTP is served; raises `BadConfiguration` for roles without a provider."""
        if self._roles.groups and http.people is None:
            raise BadConfiguration(
                "console.roles: people sign in at the provider of [login.provider], which is not set.",
                hint="set login.enabled and login.provider.issuer, or remove [console.roles]",
            )
        self._http = http

    @property
    def place(self) -> Place | None:
        """The provider at which people sign in; None without one."""
        people = self._http.people if self._http is not None and self._roles.groups else None
        return None if people is None else Place(people.url, people.issuer)

    # Sessions

    async def find(self, request: HttpRequest) -> Admission | None:
        """Return the admission of a person by the cookie and the session secret of their browser; None for any other request."""
        place, secret = self.place, _session_secret_of(request)
        if place is None or self._http is None or not secret or not (cookies := _read_session(request, place)):
            return None
        found = await self._sessions.find(cookies, secret)
        if found is None:
            return None
        who, rest_s = found
        # By the settings of now: a group that has lost its role has lost it for those who are signed in, too.
        role = self._roles.find_role(who.groups)
        if role is None:
            return None
        return self._http.access.roster.admit_person(
            who.subject,
            name=who.name,
            role=role,
            signed_in_at=who.signed_in_at,
            until=time.time() + min(rest_s, CHECKED_S),
        )

    async def end(self, request: HttpRequest) -> bytes | None:
        """End the session of a request; returns the header by which its browser forgets it, None without one."""
        if (place := self.place) is None or not (cookies := _read_session(request, place)):
            return None
        await self._sessions.end(cookies, _session_secret_of(request))
        return _write_cookie(place, "session", "", 0)

    # Signing in

    async def begin(self, request: HttpRequest, body: _BeginBody) -> tuple[str, bytes]:
        """Return the address at which the person signs in, and the header with the cookie of what was begun."""
        if (place := self.place) is None or self._http is None or (provider := self._http.people) is None:
            raise Forbidden("Nobody can sign in to this console.", hint="set [login.provider] and [console.roles]")
        if request.headers.get(b"host", b"").decode("latin-1").lower() != urlsplit(place.url).netloc.lower():
            # The provider sends the browser back there, and it has no cookie of another name.
            raise Forbidden("People sign in at the public address of this gateway.", hint=f"open {place.url}")
        if not _HASH.fullmatch(body.session_secret_hash):
            raise InvalidRequest("`sessionSecretHash` is the SHA-256 of the session secret, in hexadecimal digits.")
        if not _PATH.fullmatch(body.to) or body.to.startswith("//"):
            raise InvalidRequest("`to` is a path of this console, such as /servers.")
        state = secrets.token_urlsafe(32)
        location = await provider.begin(state, callback=CALLBACK_PATH, is_fresh=body.fresh)
        begun = _Begun(
            state=state, secret_hash=body.session_secret_hash, to=body.to, fresh=body.fresh, until=time.time() + BEGUN_S
        )
        text = base64.urlsafe_b64encode(msgspec.json.encode(begun)).decode()
        return location, _write_cookie(place, "sign_in", f"{text}.{self._sign(text, place)}", BEGUN_S)

    async def finish(self, request: HttpRequest) -> tuple[str, list[bytes]]:
        """Sign a person in who comes back from the provider; returns the address to go on with, and cookies."""
        if (place := self.place) is None or self._http is None or (provider := self._http.people) is None:
            raise Forbidden("Nobody can sign in to this console.")
        over = _write_cookie(place, "sign_in", "", 0)
        query = dict(parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True))
        begun = self._find_begun(request, place, query.get("state", ""))
        if begun is None:
            return f"{place.url}{PROBLEM_PATH}over", [over]
        try:
            if "code" not in query:
                raise Forbidden("The provider did not sign the person in.")
            claims = await provider.finish(query["code"], begun.state, issuer=query.get("iss"), callback=CALLBACK_PATH)
        except Forbidden as error:
            event(_log, logging.WARNING, "sign-in failed", reason=error.message)
            return f"{place.url}{PROBLEM_PATH}refused", [over]
        who = self._read_claims(claims)
        if not who.groups:
            event(_log, logging.WARNING, "sign-in failed", person=who.name, subject=who.subject, reason="no role")
            return f"{place.url}{PROBLEM_PATH}role", [over]
        if begun.fresh and not is_fresh(who.signed_in_at):
            event(_log, logging.WARNING, "sign-in failed", person=who.name, subject=who.subject, reason="not fresh")
            return f"{place.url}{PROBLEM_PATH}fresh", [over]
        cookie = secrets.token_urlsafe(32)
        seconds = self._roles.session_s
        await self._sessions.begin(_bind(cookie, place), who, secret_hash=begun.secret_hash, seconds=seconds)
        role = self._roles.find_role(who.groups)
        event(_log, logging.INFO, "signed in", person=who.name, subject=who.subject, role=role, fresh=begun.fresh)
        return f"{place.url}{begun.to}", [over, _write_cookie(place, "session", cookie, seconds)]

    def _find_begun(self, request: HttpRequest, place: Place, state: str) -> _Begun | None:
        for value in read_cookies(request.headers, _cookie_name(place, "sign_in")):
            text, _, signature = value.rpartition(".")
            if not hmac.compare_digest(signature.encode("latin-1"), self._sign(text, place).encode()):
                continue
            begun = msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Begun)
            if begun.until > time.time() and hmac.compare_digest(
                begun.state.encode(), state.encode("utf-8", "replace")
            ):
                return begun
        return None

    def _read_claims(self, claims: Claims) -> SignedIn:
        names = (claims.all.get(each) for each in ("name", "preferred_username", "email", "sub"))
        name = next(each for each in names if isinstance(each, str) and each)
        told_at = claims.all.get("auth_time")
        return SignedIn(
            subject=claims.subject or "",
            name="".join(char for char in name if char.isprintable())[:200],
            groups=tuple(sorted(claims.values(self._roles.claim) & self._roles.groups)),
            signed_in_at=float(told_at) if isinstance(told_at, int) and told_at > 0 else 0.0,
        )

    def _sign(self, text: str, place: Place) -> str:
        return hmac.digest(self._key, _bind(text, place).encode(), "sha256").hex()


def is_fresh(signed_in_at: float) -> bool:
    """Whether a person has signed in a few minutes ago at most."""
    return -SKEW_S <= time.time() - signed_in_at <= FRESH_S


def _bind(cookie: str, place: Place) -> str:
    """Return what a cookie is stored and signed as."""
    return f"{place.url}\n{place.issuer}\n{cookie}"


def _read_session(request: HttpRequest, place: Place) -> list[str]:
    return [_bind(value, place) for value in read_cookies(request.headers, _cookie_name(place, "session")) if value]


def _cookie_name(place: Place, purpose: str) -> str:
    """Return the name of a cookie. Over TLS no other host can set it; else ports are told apart by the name."""
    url = urlsplit(place.url)
    return f"__Host-toolpost_{purpose}" if url.scheme == "https" else f"toolpost_{purpose}_{url.port or 80}"


def _write_cookie(place: Place, purpose: str, value: str, seconds: int) -> bytes:
    secure = "; Secure" if place.url.startswith("https:") else ""
    # Lax: the browser comes back from the provider's pages, and the page's own requests need the session secret as well.
    facts = f"Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
    return f"{_cookie_name(place, purpose)}={value}; {facts}".encode()


def _session_secret_of(request: HttpRequest) -> str:
    return request.headers.get(b"x-toolpost-session-secret", b"").decode("latin-1")


class SignInRoutes:
    """The paths by which people sign in, for browsers that have not done so yet."""

    def __init__(self, http: HttpContext, people: People) -> None:
        self._access = http.access
        self._people = people

    def serves(self, path: str) -> bool:
        return path in (SIGN_IN_PATH, CALLBACK_PATH)

    async def answer(self, request: HttpRequest) -> None:
        """Answer a request; nothing that it returns is known of a caller."""
        self._access.check_host_and_origin(request.headers)
        try:
            if request.path == CALLBACK_PATH and request.method == "GET":
                await self._come_back(request)
            elif request.path == SIGN_IN_PATH and request.method == "GET":
                place = self._people.place
                name = None if place is None else urlsplit(place.issuer).hostname
                await _answer(request, {"provider": name})
            elif request.path == SIGN_IN_PATH and request.method == "POST":
                await self._begin(request)
            else:
                raise InvalidRequest(f"{request.method} is not for this path.")
        except ToolpostError as error:
            await _answer(request, {"error": error.as_object()}, status=STATUSES[error.code])

    async def _begin(self, request: HttpRequest) -> None:
        check_same_origin(request)
        raw = await request.body(BODY_LIMIT)
        if raw is None:
            return
        try:
            body = msgspec.json.decode(raw, type=_BeginBody)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"The body is not as it must be: {error}.") from error
        location, cookie = await self._people.begin(request, body)
        await _answer(request, {"location": location}, cookies=[cookie])

    async def _come_back(self, request: HttpRequest) -> None:
        address, cookies = await self._people.finish(request)
        headers = [
            (b"location", address.encode("latin-1")),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"content-length", b"0"),
            *((b"set-cookie", cookie) for cookie in cookies),
        ]
        await request.send({"type": "http.response.start", "status": 303, "headers": headers})
        await request.send({"type": "http.response.body", "body": b""})


async def _answer(request: HttpRequest, body: Any, *, status: int = 200, cookies: list[bytes] | None = None) -> None:
    headers = [(b"cache-control", b"no-store"), *((b"set-cookie", cookie) for cookie in cookies or ())]
    await send_json(request.send, encode(body), status=status, headers=headers)
