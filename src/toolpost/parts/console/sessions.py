"""Who may change anything from a browser.

A gateway that asks for no token is open to every program of this machine, and a browser shows pages of strangers. Most reading
needs nothing, since no page of another origin can see an answer. Logs, kept contents, settings of servers, changes and calls need
a cookie, and the cookie needs a secret that only the person at the terminal knows: `toolpost serve` prints it in the address
of the console, `toolpost console` makes another one. A secret can be used once; the store knows those that were not.

    serve: issue() -> "k3J…"        http://127.0.0.1:8420/#secret=k3J…
    page:  POST /api/console/session {"secret": "k3J…"}  ->  Set-Cookie: toolpost_console_8420=1795…, {"sessionSecret": "Qx0…"}
    page:  POST /api/console/…  Cookie: toolpost_console_8420=1795…, X-Toolpost-Session-Secret: Qx0…
    page:  POST /api/console/session/end  ->  this cookie is invalid

Browsers send a cookie to every port of a host, and so to other servers of this machine. The page stores the session secret where
only pages of this port can read it, and the cookie is invalid without it.

The cookie is needed for changes by the pages of other parts too, such as a vote or a message in the chat (`check_browser`), but
only in a browser: programs of this machine may use their APIs without it, as they may use every tool.

Where tokens are required, the cookie is needed as well for what decides about the commands that the gateway runs: servers in
`toolpost.toml`, and the lock. A token is known to every client, and is not the right to run commands on this machine.

The cookie is signed with a key of the store, so that it survives a restart of the gateway. Several gateways may share a store:
secrets and cookies are valid at the one project and port that they were made for.
"""

import hashlib
import hmac
import secrets
import time
from typing import Final

from toolpost import CallerId, Forbidden, Item
from toolpost.endpoints.http import HttpRequest, read_cookies
from toolpost.parts.console.gateway_id import GatewayId
from toolpost.store import Store

SECRET_S: Final = 24 * 3600.0
"""How long a secret can be used: the address may be opened later than it is printed."""

COOKIE_S: Final = 30 * 24 * 3600
API_PATH: Final = "/api/console"
SESSION_PATH: Final = f"{API_PATH}/session"
COOKIE_PATH: Final = "/api"
"""The pages of all parts send it with their requests."""

_KEY: Final = "console"
_ENDED: Final = "ended "
"""Begins the ids of items that are no secrets, but sessions that were ended before their time."""
_OWNER: Final = CallerId("local")
_HINT: Final = "run `toolpost console`, or open the address that `toolpost serve` prints at a terminal"


class ConsoleSessions:
    """The secrets and cookies of the gateways of a project, one for each port."""

    def __init__(self, store: Store, gateway: GatewayId) -> None:
        self._store = store
        self._gateway = gateway
        self._key = b""
        self._ended: set[str] = set()
        """Bodies of cookies whose sessions were ended."""

    async def open(self) -> None:
        """Read the key that signs cookies and the sessions that were ended; forget what is too old."""
        self._key = await self._store.keys.of(_KEY)
        for item in await self._store.key_values.items(_KEY, _OWNER):
            if item.value["expires"] < time.time():
                await self._store.key_values.swap(_KEY, item, None)
            elif item.id.startswith(_ENDED):
                self._ended.add(item.id.removeprefix(_ENDED))

    async def issue(self, port: int) -> str:
        """Make a secret that can be used once, at the gateway that listens on this port."""
        secret = secrets.token_urlsafe(24)
        value = {"expires": time.time() + SECRET_S}
        # Only its digest is stored: who can read the store is told nothing that can be used.
        await self._store.key_values.put(_KEY, Item(owner=_OWNER, id=self._digest(secret, port), value=value))
        return secret

    async def is_unused(self, secret: str, port: int) -> bool:
        """Whether a secret still waits for the browser that uses it up."""
        return await self._store.key_values.find(_KEY, _OWNER, self._digest(secret, port)) is not None

    async def redeem(self, secret: str, request: HttpRequest) -> bool:
        """Use a secret up; False if there is no such secret, or no longer."""
        item = await self._store.key_values.find(_KEY, _OWNER, self._digest(secret, _port_of(request)))
        if item is None or item.value["expires"] < time.time():
            return False
        # Of two who come at once with the same secret, one gets in.
        return await self._store.key_values.swap(_KEY, item, None)

    def make_cookie(self, request: HttpRequest) -> tuple[bytes, str]:
        """Make the `Set-Cookie` header of a browser whose secret was right, and the session secret of its page."""
        session_secret = secrets.token_urlsafe(24)
        body = f"{int(time.time()) + COOKIE_S}.{secrets.token_urlsafe(12)}"
        signature = self._sign(body, _port_of(request), session_secret)
        return _write_cookie(request, f"{body}.{signature}", COOKIE_S), session_secret

    def has_cookie(self, request: HttpRequest) -> bool:
        """Whether the request has a cookie that was made here and is not over, and the session secret that belongs to it."""
        return self._find_session(request) is not None

    async def end(self, request: HttpRequest) -> bytes:
        """End the session of a request, everywhere its cookie may be; returns the header by which the browser forgets it."""
        if (body := self._find_session(request)) is not None:
            self._ended.add(body)
            value = {"expires": float(body.partition(".")[0])}
            await self._store.key_values.put(_KEY, Item(owner=_OWNER, id=f"{_ENDED}{body}", value=value))
        return _write_cookie(request, "", 0)

    def _find_session(self, request: HttpRequest) -> str | None:
        """Return the body of the cookie of a request, without its signature; None without a valid one."""
        name, port = _cookie_name(request), _port_of(request)
        session_secret = request.headers.get(b"x-toolpost-session-secret", b"").decode("latin-1")
        for value in read_cookies(request.headers, name):
            body, _, signature = value.rpartition(".")
            if not hmac.compare_digest(signature.encode("latin-1"), self._sign(body, port, session_secret).encode()):
                continue
            until = body.partition(".")[0]
            if until.isascii() and until.isdigit() and int(until) > time.time() and body not in self._ended:
                return body
        return None

    def _sign(self, body: str, port: int, session_secret: str) -> str:
        signed = f"cookie\n{self._gateway}\n{port}\n{session_secret}\n{body}"
        return hmac.new(self._key, signed.encode(), hashlib.sha256).hexdigest()

    def _digest(self, secret: str, port: int) -> str:
        return hashlib.sha256(f"{self._gateway}\n{port}\n{secret}".encode()).hexdigest()


def check_same_origin(request: HttpRequest) -> None:
    """Refuse a request that a page of another origin may have sent.

    `SameSite=Strict` is not enough: another port of this machine counts as the same site, and so its pages send the cookie too.
    """
    headers = request.headers
    host = headers.get(b"host", b"")
    origin = headers.get(b"origin")
    is_foreign = origin is not None and origin not in (b"http://" + host, b"https://" + host)
    if is_foreign or headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
        raise Forbidden("Only the console's own page may send this request.")
    if headers.get(b"x-toolpost") != b"1":
        # A page of another origin cannot send this header without asking first, and is refused then.
        raise Forbidden("This request needs the header `X-Toolpost: 1`.")


def may_write(sessions: ConsoleSessions, request: HttpRequest, *, is_open: bool) -> bool:
    """Whether this request may change something, as far as its credentials go: `is_open` is where no token is required."""
    return not is_open or sessions.has_cookie(request)


def check_browser_write(sessions: ConsoleSessions, request: HttpRequest, *, is_open: bool) -> None:
    """Raise `Forbidden` for a request that may not change anything."""
    check_same_origin(request)
    if not may_write(sessions, request, is_open=is_open):
        raise Forbidden("Changes need the secret of this gateway.", hint=_HINT, needs="secret", at=SESSION_PATH)


def check_browser(sessions: ConsoleSessions, request: HttpRequest) -> None:
    """Raise `Forbidden` for a request of a browser that may not change anything where no token is required.

    Browsers say where a request comes from, and let no page leave that out. Anything else is a program of this machine.
    """
    if b"origin" in request.headers or b"sec-fetch-site" in request.headers:
        check_browser_write(sessions, request, is_open=True)


def _write_cookie(request: HttpRequest, value: str, seconds: int) -> bytes:
    facts = f"Path={COOKIE_PATH}; Max-Age={seconds}; HttpOnly; SameSite=Strict"
    return f"{_cookie_name(request)}={value}; {facts}{'; Secure' if _is_secure(request) else ''}".encode()


def _is_secure(request: HttpRequest) -> bool:
    """Whether the browser has the page by TLS, which a proxy in front of the gateway may end.

    The browser itself says so in `Origin`. A client that lies gets a cookie that it will not be sent back, and nothing else.
    """
    return request.scope.get("scheme") == "https" or request.headers.get(b"origin", b"").startswith(b"https://")


def _port_of(request: HttpRequest) -> int:
    """Return the port that the request came to. That of its `Host` is what the client says, and may be a forwarded one."""
    server = request.scope.get("server")
    return (server[1] or 0) if server else 0


def _cookie_name(request: HttpRequest) -> str:
    """Return the cookie's name. Browsers do not tell the ports of a host apart: two gateways need two names."""
    port = request.headers.get(b"host", b"").decode("latin-1").rpartition(":")[2]
    return f"toolpost_console_{port if port.isdigit() else '80'}"
