"""The HTTP paths of the authorization server.

The protocol's endpoints are the SDK's. What is added here: parameters that come twice are refused, `iss` is in every answer, the
browser has a cookie before its request is kept, and a form counts once, from its own page, in the browser that it was shown in.
"""

import ipaddress
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlsplit

from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.revoke import RevocationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.settings import ClientRegistrationOptions
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolpost import Caller, CallerId, ErrorCode, NotFound
from toolpost.endpoints.http import (
    MCP_PATH,
    HttpContext,
    HttpRequest,
    PlainPage,
    Refused,
    address_key,
    read_cookies,
    send_json,
    view_of,
)
from toolpost.parts.authorization_server import records
from toolpost.parts.authorization_server.pace import LOGINS, REGISTRATIONS, Pace
from toolpost.parts.authorization_server.pages import consent_page, problem_page, sign_in_page
from toolpost.parts.authorization_server.passphrase import RETRY_S, TooManyTries
from toolpost.parts.authorization_server.provider import CALLBACK_PATH, OpenIdProvider, ProviderFailed
from toolpost.parts.authorization_server.records import LoginRequest, hash_of
from toolpost.parts.authorization_server.scopes import is_read_only
from toolpost.parts.authorization_server.server import (
    CONSENT_PATH,
    AuthorizationServer,
    HashedSecrets,
    browser,
    metadata_of,
    token_resource,
)
from toolpost.protocol import BadShape, check_shape

if TYPE_CHECKING:
    from toolpost.parts.authorization_server.settings import LoginSettings
    from toolpost.store import Store

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

METADATA_PATH: Final = "/.well-known/oauth-authorization-server"
PROVIDER_PATH: Final = "/authorize/provider"
BODY_LIMIT: Final = 64 * 1024
REGISTRATION_VALUES: Final = 1_000
"""The SDK's models take 3 µs for each, and describe each that is wrong."""

_OPEN: Final = {"/token", "/register", "/revoke"}
"""Endpoints for clients, which may be pages of other sites: they take no cookies."""

_PAGES: Final = {"/authorize", CONSENT_PATH, PROVIDER_PATH, CALLBACK_PATH}
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_REMEMBERED: Final = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{64}")
_REMEMBERED_S: Final = 31_536_000
_OVER: Final = (
    "This login is over, was used already, or was started in another browser. Start again in your application."
)
_WRONG: Final = "That name and passphrase do not match. After ten wrong passphrases, wait for five minutes."
"""Also for a name that does not exist, and for one passphrase too many: it must not tell them apart."""

_BUSY: Final = "Too many people are logging in. Try again in a moment."
_CROWDED: Final = "Too many logins were begun from your address, or in all. Try again in ten minutes."
_CORS: Final = [(b"access-control-allow-origin", b"*"), (b"cache-control", b"no-store")]
_PREFLIGHT: Final = [
    *_CORS,
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"authorization, content-type, mcp-protocol-version"),
    (b"content-length", b"0"),
]


class LoginRoutes:
    """Answers the paths of the authorization server."""

    def __init__(
        self,
        http: HttpContext,
        server: AuthorizationServer,
        settings: "LoginSettings",
        store: "Store",
        provider: OpenIdProvider | None,
        *,
        trusted_proxies: Sequence[IpNetwork],
    ) -> None:
        self._access = http.access
        self._server = server
        self._store = store
        self._provider = provider
        self._gateway = http.gateway
        self._trusted_proxies = trusted_proxies
        self._registrations = Pace(REGISTRATIONS)
        self._logins = Pace(LOGINS)
        self._metadata = metadata_of(server, settings)
        self._is_secure = server.issuer.startswith("https:")
        prefix = "__Host-" if self._is_secure else ""
        self._cookie = f"{prefix}toolpost-login"
        self._remembered = f"{prefix}toolpost-remembered"
        authenticator = HashedSecrets(server)
        options = ClientRegistrationOptions(enabled=True, default_scopes=list(server.scopes))
        self._authorize = AuthorizationHandler(server)
        self._handlers = {
            "/token": TokenHandler(server, authenticator).handle,
            "/register": RegistrationHandler(server, options).handle,
            "/revoke": RevocationHandler(server, authenticator).handle,
        }
        server.roster = http.access.roster

    def serves(self, path: str) -> bool:
        return path in _OPEN or path in _PAGES or path == METADATA_PATH

    async def answer(self, request: HttpRequest) -> None:
        # Origins are checked where a cookie counts.
        headers = {name: value for name, value in request.headers.items() if name != b"origin"}
        self._access.check_host_and_origin(headers)
        if request.path in _PAGES:
            await self._answer_page(request)
        elif request.method == "OPTIONS":
            await request.send({"type": "http.response.start", "status": 204, "headers": _PREFLIGHT})
            await request.send({"type": "http.response.body", "body": b""})
        elif request.path == METADATA_PATH:
            _require(request, "GET")
            await send_json(request.send, self._metadata, headers=_CORS)
        else:
            _require(request, "POST")
            await self._answer_client(request)

    # For clients

    async def _answer_client(self, request: HttpRequest) -> None:
        body = await request.body(BODY_LIMIT)
        if body is None:
            return
        response = await self._handle_client(request, body)
        for name, value in _CORS:
            response.headers[name.decode()] = value.decode()
        await response(request.scope, request.replay(body), request.send)

    async def _handle_client(self, request: HttpRequest, body: bytes) -> Response:
        handle: Callable[[Request], Awaitable[Response]] = self._handlers[request.path]
        if request.path == "/register":
            refused = self._check_registration(request, body)
            return refused or await handle(Request(request.scope, request.replay(body)))
        if request.headers.get(b"content-type", b"").split(b";")[0].strip() != b"application/x-www-form-urlencoded":
            return _oauth_error("invalid_request", "send a form: application/x-www-form-urlencoded")
        form = _parse_once(body)
        if form is None:
            return _oauth_error("invalid_request", "a parameter comes twice")
        if request.path == "/token" and form.get("grant_type") not in ("authorization_code", "refresh_token"):
            return _oauth_error("unsupported_grant_type", "use authorization_code or refresh_token")
        if request.path == "/revoke":
            # The SDK's model wants it to be there.
            form.setdefault("client_secret", "")
            body = "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in form.items()).encode()
        named = token_resource.set(form.get("resource"))
        try:
            return await handle(Request(request.scope, request.replay(body)))
        finally:
            token_resource.reset(named)

    def _check_registration(self, request: HttpRequest, body: bytes) -> Response | None:
        """Return the refusal of a registration that comes too soon or is too large; None if it may be read."""
        if wait_s := self._registrations.take(find_address(request, self._trusted_proxies)):
            return _oauth_error("temporarily_unavailable", "too many clients register themselves", wait_s=wait_s)
        try:
            check_shape(body, value_limit=REGISTRATION_VALUES)
        except BadShape as error:
            return _oauth_error("invalid_client_metadata", f"the registration {error}")
        return None

    # For people

    async def _answer_page(self, request: HttpRequest) -> None:
        if request.path == "/authorize":
            _require(request, "GET")
            await self._begin(request)
            return
        cookie = self._read_cookie(request, self._cookie, _COOKIE)
        if cookie is None:
            await self._show(request, problem_page(_OVER))
        elif request.path == CONSENT_PATH and request.method == "POST":
            await self._take_form(request, cookie)
        elif request.path == CONSENT_PATH:
            _require(request, "GET")
            await self._show(request, await self._render(_query(request).get("request", ""), cookie))
        elif request.path == PROVIDER_PATH:
            _require(request, "GET")
            await self._send_to_provider(request, cookie)
        else:
            _require(request, "GET")
            await self._return_from_provider(request, cookie)

    async def _begin(self, request: HttpRequest) -> None:
        """Have the SDK check the request of a client; the browser has a cookie from here on."""
        query = _parse_once(request.scope["query_string"])
        if query is None:
            await self._show(request, problem_page("A parameter of the request comes twice."))
            return
        if wait_s := self._logins.take(find_address(request, self._trusted_proxies)):
            page = problem_page(_CROWDED, status=429)
            page.headers.append((b"retry-after", b"%d" % math.ceil(wait_s)))
            await self._show(request, page)
            return
        cookie = self._read_cookie(request, self._cookie, _COOKIE) or secrets.token_urlsafe(32)
        owner = browser.set(cookie)
        try:
            response = await self._authorize.handle(Request(request.scope, request.receive))
        finally:
            browser.reset(owner)
        location = response.headers.get("location")
        if location is not None and not location.startswith(f"{self._server.issuer}{CONSENT_PATH}?"):
            client = await self._server.get_client(query.get("client_id", ""))
            if client is None or not client.may_follow(location):
                # Otherwise a link to this gateway would lead anywhere: clients register themselves (RFC 9700, 4.11.2).
                await self._show(request, problem_page(_describe_error(location)))
                return
            joint = "&" if "?" in location else "?"
            response.headers["location"] = f"{location}{joint}iss={quote(self._server.issuer, safe='')}"
        # Before the person has seen anything: a request that another browser has begun cannot be finished in this one.
        response.headers["set-cookie"] = self._write_cookie(self._cookie, cookie)
        response.headers["x-content-type-options"] = "nosniff"
        response.headers["x-frame-options"] = "DENY"
        await response(request.scope, request.receive, request.send)

    async def _render(self, name: str, cookie: str, *, problem: str | None = None) -> PlainPage:
        """Show the page of a request: who are you, or, once that is known, what do you allow."""
        shown = await self._server.show(name, cookie)
        client = await self._server.get_client(shown[0].client) if shown is not None else None
        if shown is None or client is None:
            return problem_page(_OVER)
        request, form = shown
        # Characters that turn the direction of text around could make the page say something else.
        title = "".join(char for char in client.client_name or "" if char.isprintable())[:200] or client.client_id[:200]
        found = self._server.find_caller(request.identity) if request.identity is not None else None
        if found is None:
            members = self._access.roster.members.callers
            return sign_in_page(
                client=title,
                request=name,
                form=form,
                problem=problem,
                has_callers=any(known.passphrase or known.has_own_token for known in members),
                provider=self._provider.issuer if self._provider is not None else None,
            )
        try:
            tools = self._list_tools(request, found[1], is_read_only=False)
        except NotFound:
            return problem_page(f"There is no {request.params.resource} for you at this gateway.", status=404)
        try:
            readable = self._list_tools(request, found[1], is_read_only=True)
        except NotFound:
            readable = []  # the endpoint has tools, and none of them is read-only
        return consent_page(
            client=title,
            client_id=client.client_id if client.is_document else None,
            redirect_uri=request.params.redirect_uri,
            scopes=request.params.scopes,
            resource=request.params.resource,
            caller=found[1],
            tools=readable if is_read_only(request.params.scopes) else tools,
            readable=readable,
            request=name,
            form=form,
        )

    def _list_tools(self, request: LoginRequest, caller: CallerId, *, is_read_only: bool) -> Sequence[str]:
        path = f"{MCP_PATH}{request.params.resource.removeprefix(self._server.resource)}"
        view = view_of(path)
        if view is None:
            return []
        limited = Caller(id=caller, transport="http", is_read_only=is_read_only)
        catalog = self._gateway.catalog.narrow(view.within(self._access.roster.scopes_of(limited) or ()))
        return sorted(catalog.listed_name(tool) for tool in catalog)

    async def _take_form(self, request: HttpRequest, cookie: str) -> None:
        if request.headers.get(b"origin", b"").decode("latin-1") != self._server.issuer:
            # Every browser says where a form comes from. One of another site must not log a person in, nor consent.
            raise Refused(403, ErrorCode.FORBIDDEN, "This form was not sent by the login page")
        body = await request.body(BODY_LIMIT)
        if body is None:
            return
        form = _parse_once(body) or {}
        name = form.get("request", "")
        # The token of the form is used up here, whatever the form says: a page that was sent cannot be sent again.
        taken = await self._server.take_form(name, cookie, form.get("form", ""))
        if taken is None:
            await self._show(request, problem_page(_OVER))
        elif form.get("action") == "sign-in" and taken.identity is None:
            try:
                signed_in = await self._server.sign_in(
                    taken,
                    form.get("name", ""),
                    form.get("passphrase", ""),
                    address=find_address(request, self._trusted_proxies),
                    remembered=self._read_cookie(request, self._remembered, _REMEMBERED) or "",
                )
            except TooManyTries:
                page = await self._render(name, cookie, problem=_BUSY)
                page.status = 503
                page.headers.append((b"retry-after", b"%d" % RETRY_S))
                await self._show(request, page)
                return
            if signed_in is None:
                await self._show(request, await self._render(name, cookie, problem=_WRONG))
                return
            cookie, remembered = signed_in
            cookies = [
                self._write_cookie(self._cookie, cookie),
                f"{self._write_cookie(self._remembered, remembered)}; Max-Age={_REMEMBERED_S}",
            ]
            await self._show(request, await self._render(name, cookie), cookies=cookies)
        else:
            target = None
            if form.get("action") in ("allow", "allow-read"):
                target = await self._server.approve(taken, only_reads=form["action"] == "allow-read")
            elif form.get("action") == "deny":
                target = await self._server.deny(taken)
            await (self._redirect(request, target) if target else self._show(request, problem_page(_OVER)))

    async def _send_to_provider(self, request: HttpRequest, cookie: str) -> None:
        state = secrets.token_urlsafe(32)
        name = hash_of(_query(request).get("request", ""))
        owner, digest = hash_of(cookie), hash_of(state)
        found = await self._store.scripts.run(lambda: records.set_state(name, owner, digest))
        if found is None or self._provider is None:
            await self._show(request, problem_page(_OVER))
            return
        try:
            # The state carries the name of the request behind it, which only this browser may use.
            target = await self._provider.start(f"{state}.{_query(request)['request']}")
        except ProviderFailed as error:
            await self._show(request, problem_page(str(error), status=502))
            return
        await self._redirect(request, target)

    async def _return_from_provider(self, request: HttpRequest, cookie: str) -> None:
        query = _parse_once(request.scope["query_string"]) or {}
        whole = query.get("state", "")
        state, _, name = whole.partition(".")
        owner, digest = hash_of(cookie), hash_of(state)
        taken = await self._store.scripts.run(lambda: records.take_state(owner, digest), repeatable=False)
        if taken is None or self._provider is None or taken.id != hash_of(name):
            await self._show(request, problem_page(_OVER))
            return
        try:
            if "code" not in query:
                raise ProviderFailed("The provider did not log you in")
            identity = await self._provider.identify(query["code"], whole, query.get("iss"))
        except ProviderFailed as error:
            await self._show(request, problem_page(str(error)))
            return
        known_as = await self._server.identify(taken, identity)
        if known_as is None:
            await self._show(request, problem_page("You are known to the provider, and to no caller here.", status=403))
            return
        target = f"{self._server.issuer}{CONSENT_PATH}?request={quote(name, safe='')}"
        await self._redirect(request, target, cookies=[self._write_cookie(self._cookie, known_as)])

    def _write_cookie(self, name: str, value: str) -> str:
        secure = "; Secure" if self._is_secure else ""
        return f"{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}"

    def _read_cookie(self, request: HttpRequest, name: str, pattern: re.Pattern[str]) -> str | None:
        return next(filter(pattern.fullmatch, read_cookies(request.headers, name)), None)

    async def _show(self, request: HttpRequest, page: PlainPage, *, cookies: Sequence[str] = ()) -> None:
        headers = [*page.headers, *((b"set-cookie", each.encode()) for each in cookies)]
        await request.send({"type": "http.response.start", "status": page.status, "headers": headers})
        await request.send({"type": "http.response.body", "body": page.body})

    async def _redirect(self, request: HttpRequest, target: str, *, cookies: Sequence[str] = ()) -> None:
        headers = [
            (b"location", target.encode("latin-1", "replace")),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"content-length", b"0"),
            *((b"set-cookie", each.encode()) for each in cookies),
        ]
        await request.send({"type": "http.response.start", "status": 303, "headers": headers})
        await request.send({"type": "http.response.body", "body": b""})


def find_address(request: HttpRequest, trusted_proxies: Sequence[IpNetwork]) -> str:
    """Return what tries are counted under: the client's address, as a trusted proxy in front of the gateway says it.

    `X-Forwarded-For` is read from the right, as long as the address before it is that of a trusted proxy. One on this machine has
    to be named as well, since any program here could be it. Where a proxy passes on what its clients say, they can choose: the
    limit for all addresses together holds.
    """
    peer = request.scope.get("client")
    hops = [hop.strip() for hop in request.headers.get(b"x-forwarded-for", b"").decode("latin-1").split(",")]
    try:
        address = _parse_address(peer[0]) if peer else None
        while address is not None and hops and any(address in network for network in trusted_proxies):
            if hop := hops.pop():
                address = _parse_address(hop)
        return address_key(str(address) if address else None, trusted_proxies) or ""
    except ValueError:
        return ""


def _parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    return (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped) or address


def _require(request: HttpRequest, method: str) -> None:
    if request.method != method:
        raise Refused(
            405,
            ErrorCode.INVALID_REQUEST,
            f"This path takes {method} only",
            headers=[(b"allow", method.encode())],
        )


def _query(request: HttpRequest) -> Mapping[str, str]:
    return _parse_once(request.scope["query_string"]) or {}


def _parse_once(raw: bytes) -> dict[str, str] | None:
    """Parse a form or a query; None if a parameter comes twice, since two readers could take different ones."""
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return None
    found = dict(pairs)
    return found if len(found) == len(pairs) else None


def _describe_error(location: str) -> str:
    query = dict(parse_qsl(urlsplit(location).query))
    reason = query.get("error_description") or query.get("error", "")
    return f"The application's request cannot be used ({reason}). Start again in your application."


def _oauth_error(error: str, description: str, *, wait_s: float = 0.0) -> Response:
    """Make a 400; with `wait_s`, a 429."""
    headers = {"retry-after": str(math.ceil(wait_s))} if wait_s else {}
    body = {"error": error, "error_description": description}
    return JSONResponse(body, status_code=429 if wait_s else 400, headers=headers)
