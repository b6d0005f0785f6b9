"""Checks of logins for `toolpost doctor`: the settings, and the view of a client from outside."""

from collections.abc import Sequence
from typing import Any

import anyio
import httpx2
import msgspec

from toolpost import UpstreamUnavailable
from toolpost.contracts import BadConfiguration
from toolpost.credentials import Fetcher
from toolpost.endpoints.http import MCP_PATH
from toolpost.net import Network
from toolpost.parts import PartDoctor
from toolpost.parts.authorization_server.routes import METADATA_PATH
from toolpost.parts.authorization_server.server import ACCESS, CONSENT_PATH
from toolpost.parts.authorization_server.settings import LOGIN, check_login, find_url, read_client_secret
from toolpost.settings import Config
from toolpost.terminal import Diagnosis, ok, problem, warning

# RFC 9728. The gateway serves it, and clients find it by this path as well as by the challenge.
_RESOURCE_METADATA_PATH = "/.well-known/oauth-protected-resource"
_PROXY = "let the proxy pass /.well-known/, /authorize, /token, /register and /revoke on to Toolpost"
_URL = "set http.public_url to the public URL, without /mcp, and restart the gateway"


class LoginDoctor(PartDoctor):
    """Goes the way of a client, up to the page where a person would log in."""

    async def check_setup(self, config: Config) -> Sequence[Diagnosis]:
        """Check the settings, then the public URL."""
        if not LOGIN.of(config).enabled:
            with_passphrase = [name for name, caller in config.callers.items() if caller.has_passphrase]
            if with_passphrase:
                names = ", ".join(with_passphrase)
                return [warning("login", f"{names} cannot log in: login is off", hint="set login.enabled = true")]
            return []
        try:
            check_login(config)
            read_client_secret(config)
        except BadConfiguration as error:
            return [problem("login", error.message.removesuffix("."), hint=error.hint or "")]
        return await _check_from_outside(config)


async def _check_from_outside(config: Config) -> list[Diagnosis]:
    url, network = find_url(config), config.resolve_network()
    outside = _Outside(url, network)
    try:
        return [await outside.check()]
    except UpstreamUnavailable as error:
        reason = str(error.__cause__ or error.message).removesuffix(".")
        if not await _is_serving(config):
            return [
                warning(
                    "login", f"{url} cannot be reached from here: {reason}", hint="start the gateway: toolpost serve"
                )
            ]
        hint = "check the name, the port and the certificate of the proxy, and network.ca_file if its authority is your own"
        return [problem("login", f"the gateway runs, but {url} cannot be reached from here: {reason}", hint=hint)]
    except _Wrong as wrong:
        return [problem("login", str(wrong), hint=wrong.hint)]


async def _is_serving(config: Config) -> bool:
    """Whether something listens where the gateway does, without a proxy."""
    host, port = config.address
    try:
        async with await anyio.connect_tcp(host, port):
            return True
    except OSError:
        return False


class _Wrong(Exception):
    def __init__(self, message: str, hint: str = _PROXY) -> None:
        super().__init__(message)
        self.hint = hint


class _Outside:
    def __init__(self, url: str, network: Network) -> None:
        self._url = url
        self._fetcher = Fetcher([url], network)

    async def check(self) -> Diagnosis:
        """Return what is well; raises `_Wrong`, or `UpstreamUnavailable` if nothing answers."""
        await self._check_challenge()
        await self._check_metadata()
        await self._check_pages()
        token = await self._send("POST", "/token")
        if token.status_code not in (400, 401):
            raise _Wrong(f"{self._url}/token answers {token.status_code}")
        return ok("login", f"clients can log in at {self._url}")

    async def _check_challenge(self) -> None:
        place = f"{self._url}{MCP_PATH}"
        refused = await self._send("POST", MCP_PATH)
        if refused.status_code == 421:
            raise _Wrong(f"{place} does not know its own name", "add the name in http.public_url to http.allowed_hosts")
        if refused.status_code != 401 or "resource_metadata=" not in refused.headers.get("www-authenticate", ""):
            raise _Wrong(
                f"{place} answers {refused.status_code} without a token, and does not say where to log in",
                "let the proxy pass /mcp, the status and the header WWW-Authenticate on",
            )
        wrong = await self._send("POST", MCP_PATH, authorization=f"Bearer {ACCESS}doctor")
        if "invalid_token" not in wrong.headers.get("www-authenticate", ""):
            raise _Wrong(f"{place} sees no token", "let the proxy pass the header Authorization on")

    async def _check_metadata(self) -> None:
        url = self._url
        resource = await self._read(f"{_RESOURCE_METADATA_PATH}{MCP_PATH}")
        if resource.get("resource") != f"{url}{MCP_PATH}" or url not in resource.get("authorization_servers", []):
            raise _Wrong(f"{url}{_RESOURCE_METADATA_PATH}{MCP_PATH} is about `{resource.get('resource')}`", _URL)
        metadata = await self._read(METADATA_PATH)
        if metadata.get("issuer") != url:
            raise _Wrong(f"{url}{METADATA_PATH} is of the issuer `{metadata.get('issuer')}`", _URL)
        if metadata.get("code_challenge_methods_supported") != ["S256"]:
            raise _Wrong(f"{url}{METADATA_PATH} does not offer PKCE with S256 alone")

    async def _check_pages(self) -> None:
        url = self._url
        page = await self._send("GET", f"{CONSENT_PATH}?request=doctor")
        policy = page.headers.get("content-security-policy", "")
        if "frame-ancestors 'none'" not in policy or page.headers.get("x-frame-options") != "DENY":
            raise _Wrong(
                f"{url}{CONSENT_PATH} could be shown in a frame of another site",
                "let the proxy pass the headers Content-Security-Policy and X-Frame-Options on",
            )
        begun = await self._send("GET", "/authorize?client_id=doctor")
        cookie = begun.headers.get("set-cookie", "").partition(";")[0]
        if not cookie:
            raise _Wrong(f"{url}/authorize sets no cookie", "let the proxy pass the header Set-Cookie on")
        # A form of another page is refused if both its cookie and its origin arrive, and one of our own page is only unknown.
        foreign = await self._send("POST", CONSENT_PATH, cookie=cookie, origin="https://doctor.invalid")
        own = await self._send("POST", CONSENT_PATH, cookie=cookie, origin=url)
        if (foreign.status_code, own.status_code) != (403, 400):
            raise _Wrong(
                f"{url}{CONSENT_PATH} cannot tell its own forms from those of other sites",
                "let the proxy pass the headers Cookie and Origin on, unchanged",
            )

    async def _read(self, path: str) -> dict[str, Any]:
        response = await self._send("GET", path)
        try:
            found: dict[str, Any] = msgspec.json.decode(response.content, type=dict)
        except msgspec.DecodeError:
            raise _Wrong(f"{self._url}{path} answers {response.status_code}, and not with metadata") from None
        return found

    async def _send(self, method: str, path: str, **more: str) -> httpx2.Response:
        accept = "application/json, text/event-stream, text/html"
        headers = {"content-type": "application/json", "accept": accept} | more
        content = b"{}" if method == "POST" else b""
        return await self._fetcher.send(httpx2.Request(method, f"{self._url}{path}", headers=headers, content=content))
