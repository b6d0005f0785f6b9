"""`/login/SERVER`: the pages on which a person logs in to a server behind the gateway.

GET /login/SERVER[?ticket=…]   says whose login it is and where it leads, with a link to the authorization server
GET /login/callback/SERVER     where the authorization server sends the browser back to

The address in a LOGIN_REQUIRED has a ticket; without one the request needs the caller's token, or a gateway that asks for none.
The pages contain no script, cannot be framed, and put nothing into them that is not escaped.
"""

import re
import secrets
from collections.abc import Mapping
from html import escape
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from toolpost.contracts.errors import ErrorCode, ToolpostError
from toolpost.credentials.gateway_logins import CALLBACK, PATH, GatewayLogins
from toolpost.credentials.login_flow import LoginAttempt, LoginFailed
from toolpost.endpoints.auth.access import Access
from toolpost.endpoints.http.cookies import read_cookies
from toolpost.endpoints.http.plain_page import PlainPage
from toolpost.endpoints.http.refusal import Refused, forbidden
from toolpost.endpoints.http.request import HttpRequest
from toolpost.endpoints.http.statuses import status_of
from toolpost.protocol.rpc import conceal_cause

COOKIE: Final = "toolpost_login"

_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class LoginPages:
    """The login's paths."""

    def __init__(self, access: Access, logins: GatewayLogins) -> None:
        self._access = access
        self._logins = logins

    def serves(self, path: str) -> bool:
        return path.startswith(f"{PATH}/")

    async def answer(self, request: HttpRequest) -> None:
        self._access.check_host_and_origin(request.headers)
        if request.method != "GET":
            raise Refused(405, ErrorCode.INVALID_REQUEST, "This path takes GET only", headers=[(b"allow", b"GET")])
        if request.headers.get(b"sec-fetch-dest", b"document") != b"document":
            # A picture or a frame on another page would begin logins by the dozen.
            raise forbidden("A login is a page of its own")
        query = dict(parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True))
        try:
            if request.path.startswith(f"{CALLBACK}/"):
                await self._finish(request, query)
            elif (where := self._find_own_address(request)) is not None:
                await request.send(
                    {"type": "http.response.start", "status": 303, "headers": [(b"location", where.encode())]}
                )
                await request.send({"type": "http.response.body", "body": b""})
            else:
                await self._begin(request, query)
        except ToolpostError as error:
            failure = conceal_cause(error)
            hint = f"<p>{escape(failure.hint)}</p>" if failure.hint else ""
            text = f'<p class="problem" role="alert">{escape(failure.message)}</p>{hint}'
            await _send_page(request, "The login failed", text, status=status_of(failure))

    def _find_own_address(self, request: HttpRequest) -> str | None:
        """Return the address under which the login must go on: the cookie of `localhost` is not that of `127.0.0.1`."""
        base = self._logins.base_url
        if base is None:
            raise LoginFailed("This gateway has no address for a login", hint="set http.public_url")
        if request.headers.get(b"host", b"").decode("latin-1").lower() == urlsplit(base).netloc.lower():
            return None
        query = request.scope["query_string"].decode("latin-1")
        return f"{base}{quote(request.path)}{f'?{query}' if query else ''}"

    async def _begin(self, request: HttpRequest, query: Mapping[str, str]) -> None:
        server = request.path.removeprefix(f"{PATH}/")
        ticket = None
        if "ticket" in query:
            ticket = self._logins.read_ticket(query["ticket"])
            if ticket.server != server:
                raise LoginFailed("This address of a login is not valid")
            owner = ticket.owner
        else:
            admission = await self._access.admit(request, is_page=True)
            if admission.caller.is_agent:
                raise forbidden("An agent may use tools, and nothing else")
            owner = self._logins.find_owner(server, admission.caller)
        browser = self._read_cookie(request) or secrets.token_urlsafe(32)
        attempt = await self._logins.begin(server, owner, browser=browser, ticket=ticket)
        scope = "/; Secure" if self._is_secure else PATH
        cookie = f"{self._cookie}={browser}; Path={scope}; HttpOnly; SameSite=Lax; Max-Age=900"
        await _send_page(
            request,
            f"Log in to {server}",
            _describe(server, owner, attempt),
            headers=[(b"set-cookie", cookie.encode())],
        )

    async def _finish(self, request: HttpRequest, query: Mapping[str, str]) -> None:
        server = request.path.removeprefix(f"{CALLBACK}/")
        done = await self._logins.finish(server, query, browser=self._read_cookie(request))
        whose = f"Calls of {done.owner} use it now." if done.owner else "All callers use it now."
        text = f"<p>You are logged in to <b>{escape(done.server)}</b>. {escape(whose)}</p><p>You can close this window.</p>"
        await _send_page(request, f"Logged in to {done.server}", text)

    @property
    def _is_secure(self) -> bool:
        return (self._logins.base_url or "").startswith("https://")

    @property
    def _cookie(self) -> str:
        # With this prefix, browsers take it from this very host and over TLS only: a neighbor under the same domain cannot set
        # it, and with it have a person complete the neighbor's own login.
        return f"__Host-{COOKIE}" if self._is_secure else COOKIE

    def _read_cookie(self, request: HttpRequest) -> str | None:
        return next(filter(_SECRET.fullmatch, read_cookies(request.headers, self._cookie)), None)


def _describe(server: str, owner: str, attempt: LoginAttempt) -> str:
    whose = f"calls of <b>{escape(owner)}</b>" if owner else "calls of <b>all callers</b> of this gateway"
    scopes = "".join(f"<li><code>{escape(scope)}</code></li>" for scope in attempt.scopes)
    asked = f"<p>It asks for these permissions:</p><ul>{scopes}</ul>" if scopes else ""
    button = (
        f'<a class="button primary" rel="noreferrer" href="{escape(attempt.url)}">Log in at {escape(attempt.host)}</a>'
    )
    return (
        f"<p>Your account at <b>{escape(attempt.host)}</b> will be used for {whose} to the server <b>{escape(server)}</b>.</p>"
        f"{asked}<p>Go on only if you have asked for this yourself.</p>"
        f'<p class="buttons">{button}</p>'
    )


async def _send_page(
    request: HttpRequest,
    title: str,
    text: str,
    *,
    status: int = 200,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    page = PlainPage(title, text, status=status)
    sent = [*page.headers, (b"cross-origin-opener-policy", b"same-origin"), *(headers or [])]
    await request.send({"type": "http.response.start", "status": page.status, "headers": sent})
    await request.send({"type": "http.response.body", "body": page.body})
