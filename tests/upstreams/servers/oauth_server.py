"""An MCP server that requires OAuth, and its authorization server, on one port of the test's own process.

It is as strict as a careful provider: codes are used once, with the verifier, client and redirect that they were issued for; a
refresh token is replaced at each use, belongs to one client, and its second use revokes everything that it led to.
"""

import asyncio
import base64
import hashlib
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

from tests.upstreams.servers.http_server import HttpServer, serving

ACCOUNT = "account"


@dataclass
class Issued:
    """A grant at the authorization server: all tokens that go back to one login."""

    client: str
    scope: str
    is_revoked: bool = False
    refresh: str | None = None
    subject: str | None = None
    """The token that it was exchanged for."""
    used: set[str] = field(default_factory=set)


class OAuthServer:
    """What is unusual about it is set by its attributes, while it runs."""

    def __init__(self, inner: Any = None, *, version: str = "2026-07-28", ttl_s: float = 3600.0) -> None:
        self.inner = inner or HttpServer(version=version, has_sessions=False)
        self.base = ""
        self.ttl_s = ttl_s
        self.issuer: str | None = None
        """The issuer in its metadata, if it is not its base URL."""
        self.metadata: dict[str, Any] = {}
        """Members of its metadata that are another, or None for absent."""
        self.resource_metadata: dict[str, Any] = {}
        self.challenges = True
        self.open_methods: set[str] = set()
        """MCP methods that need no token."""
        self.mcp_delays_s: list[float] = []
        """How long the next MCP requests are on their way, before their tokens are looked at."""
        self.scopes: dict[str, str] = {}
        """The scope that a tool needs."""
        self.rotates = True
        self.token_error: tuple[int, str] | None = None
        self.retry_after = ""
        self.token_pause = asyncio.Event()
        self.token_pause.set()
        self.token_delay_s = 0.0
        self.device: dict[str, Any] | None = None
        """Members of the answer to a login on another device, None if there are no such logins."""
        self.device_errors: list[int | str] = []
        """What the next requests with the code of such a login get: an error code, or a status."""
        self.authorize_error: str | None = None
        self.redirect_iss: str | None = None
        self.clients: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, dict[str, Any]] = {}
        self.access: dict[str, tuple[Issued, float]] = {}
        self.exchanged: dict[str, str | None] = {}
        self.refresh: dict[str, Issued] = {}
        self.forms: list[dict[str, str]] = []
        """What came to the token endpoint."""
        self.counts: Counter[str] = Counter()
        self.paths: list[str] = []
        self.seen_tokens: list[str] = []
        """The tokens of MCP requests that were let in."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        self.paths.append(path)
        headers = {k.decode(): v.decode() for k, v in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode()))
        if path == "/mcp" or path.startswith("/messages"):
            await self._mcp(scope, receive, send, headers)
            return
        body = b""
        while scope["method"] == "POST":
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        status, answer, more = await self._answer(path, headers, query, body)
        sent = [(b"content-type", b"application/json"), *((k.encode(), v.encode()) for k, v in more.items())]
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def _answer(
        self, path: str, headers: dict[str, str], query: dict[str, str], body: bytes
    ) -> tuple[int, Any, dict[str, str]]:
        if path == "/.well-known/oauth-protected-resource/mcp":
            known = {"resource": f"{self.base}/mcp", "authorization_servers": [self.issuer or self.base]}
            return 200, _without_none(known | self.resource_metadata), {}
        if path == "/.well-known/oauth-authorization-server":
            return 200, self._metadata(), {}
        if path == "/register":
            client = f"client-{len(self.clients) + 1}"
            self.clients[client] = json.loads(body)
            return 201, {**self.clients[client], "client_id": client}, {}
        if path == "/authorize":
            return 302, {}, {"location": self._authorize(query)}
        if path == "/device" and self.device is not None:
            return 200, self._begin_on_device(dict(parse_qsl(body.decode()))), {}
        if path == "/token":
            return await self._token(dict(parse_qsl(body.decode())), headers)
        if path == "/revoke":
            form = dict(parse_qsl(body.decode()))
            self.counts["revoked"] += 1
            if (issued := self.refresh.get(form["token"])) is not None:
                issued.is_revoked = True
            self.access.pop(form["token"], None)
            return 200, {}, {}
        return 404, {}, {}

    def _metadata(self) -> dict[str, Any]:
        known = {
            "issuer": self.issuer or self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "registration_endpoint": f"{self.base}/register",
            "revocation_endpoint": f"{self.base}/revoke",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
            "device_authorization_endpoint": f"{self.base}/device" if self.device is not None else None,
        }
        return _without_none(known | self.metadata)

    def _authorize(self, query: dict[str, str]) -> str:
        self.counts["authorized"] += 1
        client = self.clients.get(query["client_id"])
        assert client is not None, "an unknown client"
        assert query["redirect_uri"] in client["redirect_uris"], "a redirect that was not registered"
        assert query["code_challenge_method"] == "S256"
        iss = {"iss": self.redirect_iss or self.issuer or self.base}
        if self.authorize_error:
            return (
                f"{query['redirect_uri']}?{urlencode({'error': self.authorize_error, 'state': query['state'], **iss})}"
            )
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], **iss})}"

    def _begin_on_device(self, form: dict[str, str]) -> dict[str, Any]:
        assert form["client_id"] in self.clients, "an unknown client"
        code = f"device-{secrets.token_urlsafe(24)}"
        self.codes[code] = form
        known = {
            "device_code": code,
            "user_code": "WDJB-MJHT",
            "verification_uri": f"{self.base}/type",
            "verification_uri_complete": f"{self.base}/type?user_code=WDJB-MJHT",
            "expires_in": 60,
            "interval": 0.1,
        }
        return _without_none(known | (self.device or {}))

    async def _token(self, form: dict[str, str], headers: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        self.forms.append(form)
        self.counts[form["grant_type"]] += 1
        await self.token_pause.wait()
        if self.token_error is not None:
            answer = {
                "error": self.token_error[1],
                "error_description": f"{form.get('subject_token', '')} as the test wants".strip(),
            }
            return self.token_error[0], answer, {"retry-after": self.retry_after} if self.retry_after else {}
        if "device_code" in form and self.device_errors:
            error = self.device_errors.pop(0)
            return (error, {}, {}) if isinstance(error, int) else (400, {"error": error}, {})
        try:
            issued = self._grant(form, headers)
        except LookupError as error:
            return 400, {"error": "invalid_grant", "error_description": str(error)}, {}
        tokens = self.issue(issued, has_refresh=bool({"code", "device_code", "refresh_token"} & form.keys()))
        await asyncio.sleep(self.token_delay_s)
        return 200, tokens, {"cache-control": "no-store"}

    def _grant(self, form: dict[str, str], headers: dict[str, str]) -> Issued:
        if form["grant_type"] == "authorization_code":
            asked = self.codes.pop(form["code"], None)
            if asked is None:
                raise LookupError("an unknown code")
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != asked["code_challenge"]:
                raise LookupError("another verifier")
            if (form["client_id"], form["redirect_uri"]) != (asked["client_id"], asked["redirect_uri"]):
                raise LookupError("another client")
            return Issued(form["client_id"], asked.get("scope", ""))
        if form["grant_type"] == "refresh_token":
            return self._renew(form)
        if "device_code" in form:
            asked = self.codes.pop(form["device_code"], None)
            if asked is None or asked["client_id"] != form["client_id"]:
                raise LookupError("an unknown code, or another client's")
            return Issued(form["client_id"], asked.get("scope", ""))
        basic = headers.get("authorization", "").removeprefix("Basic ")
        client = unquote(base64.b64decode(basic).decode().partition(":")[0]) if basic else form.get("client_id", "")
        return Issued(client, form.get("scope", ""), subject=form.get("subject_token"))

    def _renew(self, form: dict[str, str]) -> Issued:
        token = form["refresh_token"]
        issued = self.refresh.get(token)
        if issued is None or issued.is_revoked or issued.client != form["client_id"]:
            raise LookupError("an unknown refresh token, or another client's")
        if token in issued.used:
            issued.is_revoked = True
            self.counts["reused"] += 1
            raise LookupError("a refresh token that was used already")
        if self.rotates:
            issued.used.add(token)
        return issued

    def issue(self, issued: Issued, *, has_refresh: bool) -> dict[str, Any]:
        access = f"access-{secrets.token_urlsafe(24)}"
        self.access[access] = issued, time.time() + self.ttl_s
        self.exchanged[access] = issued.subject
        answer = {"access_token": access, "token_type": "Bearer", "expires_in": int(self.ttl_s), "scope": issued.scope}
        if has_refresh:
            issued.refresh = f"refresh-{secrets.token_urlsafe(24)}"
            self.refresh[issued.refresh] = issued
            answer["refresh_token"] = issued.refresh
        return answer

    @property
    def seen_subjects(self) -> list[str | None]:
        """The tokens that were exchanged for those of MCP requests that were let in."""
        return [self.exchanged.get(token) for token in self.seen_tokens]

    def expire_all(self) -> None:
        """Make the access tokens invalid, before the time that was said."""
        self.access.clear()

    async def _mcp(self, scope: Any, receive: Any, send: Any, headers: dict[str, str]) -> None:
        body = b""
        if scope["method"] == "POST":
            while True:
                event = await receive()
                body += event.get("body", b"")
                if not event.get("more_body"):
                    break
        message = json.loads(body) if body else {}
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if self.mcp_delays_s:
            await asyncio.sleep(self.mcp_delays_s.pop(0))
        issued, until = self.access.get(token, (None, 0.0))
        is_valid = issued is not None and until > time.time() and not issued.is_revoked
        if message.get("method") in self.open_methods and not token:
            is_valid = True
        needed = self.scopes.get((message.get("params") or {}).get("name", ""))
        if not is_valid:
            self.counts["refused"] += 1
            named = f'Bearer resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
            more = [(b"www-authenticate", named.encode())] if self.challenges else []
            await send({"type": "http.response.start", "status": 401, "headers": more})
            await send({"type": "http.response.body", "body": b"{}"})
            return
        if needed and issued is not None and needed not in issued.scope.split():
            named = f'Bearer error="insufficient_scope", scope="{needed}"'
            await send(
                {"type": "http.response.start", "status": 403, "headers": [(b"www-authenticate", named.encode())]}
            )
            await send({"type": "http.response.body", "body": b"{}"})
            return
        self.seen_tokens.append(token)
        is_given = False

        async def receive_again() -> Any:
            nonlocal is_given
            if is_given or scope["method"] != "POST":
                return await receive()
            is_given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.inner(scope, receive_again, send)


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@asynccontextmanager
async def serving_oauth(server: OAuthServer, *, port: int = 0) -> AsyncIterator[str]:
    """Serve it; yields the URL of its MCP endpoint."""
    async with serving(server, port=port) as url:
        server.base = url.removesuffix("/mcp")
        yield url


async def _serve_until_killed() -> None:
    async with serving_oauth(OAuthServer()) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve_until_killed())
