"""The access rules of the HTTP endpoint: Host and Origin are checked, and a bearer token is required where callers are
configured.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolpost.contracts.errors import BadConfiguration, ErrorCode
from toolpost.endpoints.auth.rejected import RejectedTokens
from toolpost.endpoints.auth.roster import Admission, Roster
from toolpost.endpoints.http import MCP_PATH, HttpRequest, view_of
from toolpost.endpoints.http.refusal import Refused, forbidden, misdirected, unauthorized

__all__ = ["LOCAL_HOSTS", "Access", "Refused", "check_exposure", "find_proxy_setting"]

LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})

_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]+)*\.?)(?::([0-9]{1,5}))?")
_FORWARDING: Final = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"})
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


@dataclass(frozen=True, kw_only=True)
class Access:
    """The rules of one HTTP endpoint."""

    host: str
    roster: Roster
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    is_guarded: bool = False
    """Whether an application in front of the endpoint checks callers itself."""
    rejected: RejectedTokens | None = None
    """Notes requests with a wrong token."""

    def __post_init__(self) -> None:
        check_exposure(self.host, is_open=self.roster.members.is_open)

    def find_admission(self, headers: Mapping[bytes, bytes], path: str = MCP_PATH) -> Admission | None:
        """Authenticate by a token that is known already, or anonymously where no token is required.

        Returns None for a token that has to be verified first, which `admit` does. Raises `Refused`.
        """
        self.check_host_and_origin(headers)
        if self.roster.anonymous is not None:
            token = parse_bearer(headers)
            delegated = self.roster.find_delegated(token) if token is not None else None
            return delegated or self.roster.anonymous
        if (admission := self.roster.find(_read_token(headers, self.roster, path))) is not None:
            self.roster.check_endpoint(admission, path)
        return admission

    async def admit(self, request: HttpRequest, *, is_page: bool = False) -> Admission:
        """Authenticate a request; raise `Refused` with 401, 403, 400 or 421. `is_page`: pages of other sites may link to it."""
        headers = request.headers
        try:
            admission = await self._authenticate(request)
        except Refused as error:
            # A client without a token only learns how to get one.
            if error.status == 401 and self.rejected is not None and parse_bearer(headers) is not None:
                self.rejected.note(request.path, str(error))
            raise
        if admission is self.roster.anonymous:
            if not self.is_guarded and view_of(request.path) is None:
                _check_forwarding(headers)
            if not is_page:
                _check_embedding(headers)
        request.note_admitted()
        return admission

    async def _authenticate(self, request: HttpRequest) -> Admission:
        if (admission := self.find_admission(request.headers, request.path)) is not None:
            return admission
        admission = await self.roster.verify(_read_token(request.headers, self.roster, request.path))
        self.roster.check_endpoint(admission, request.path)
        return admission

    def check_host_and_origin(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `Refused` for a Host that is not this server, or an Origin whose pages may not call it."""
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        if (origin := headers.get(b"origin")) is not None:
            self._check_origin(origin.decode("latin-1"))

    def _check_host(self, host: str) -> None:
        """Guard against DNS rebinding: a page may have its own host name resolve to this server."""
        name = _parse_host(host)
        if name is None:
            problem = "is malformed" if host else "is missing"
            raise Refused(
                400, ErrorCode.INVALID_REQUEST, f"The Host header {problem}: send `Host: name` or `name:port`"
            )
        if name in LOCAL_HOSTS or name == self.host or host in self.allowed_hosts or name in self.allowed_hosts:
            return
        if self.host not in LOCAL_HOSTS and not self.allowed_hosts:
            # Off localhost a server has host names that it cannot know, and every request carries a token.
            return
        raise misdirected(
            "The Host header names another server: add the names of this one, such as that of a proxy, to "
            "http.allowed_hosts"
        )

    def _check_origin(self, origin: str) -> None:
        scheme, _, host = origin.partition("://")
        if origin in self.allowed_origins or (_SCHEME.fullmatch(scheme) and _parse_host(host) in LOCAL_HOSTS):
            return
        raise forbidden("Requests with this Origin header are not allowed: add it to http.allowed_origins")


def check_exposure(host: str, *, is_open: bool) -> None:
    """Raise `BadConfiguration` if everyone who can reach `host` could call tools without a token."""
    if is_open and host not in LOCAL_HOSTS:
        raise BadConfiguration(
            f"Listening on `{host}` requires a token: everyone who can reach it could call every tool.",
            hint="set TOOLPOST_TOKEN (or http.token, or [callers.NAME]), or listen on 127.0.0.1",
        )


def find_proxy_setting(*, allowed_hosts: Sequence[str], trusted_proxies: Sequence[str]) -> str | None:
    """Return the setting that says that a proxy is in front of the gateway, None without one.

    The proxy listens elsewhere than on localhost: where no token is required, everyone who can reach it is let in.
    """
    if any(_parse_host(name) not in LOCAL_HOSTS for name in allowed_hosts):
        return "http.allowed_hosts"
    return "http.trusted_proxies" if trusted_proxies else None


def _check_forwarding(headers: Mapping[bytes, bytes]) -> None:
    """Refuse what came through a proxy: without a token, only people at this machine may look into the gateway and change it.

    Such a header only takes rights away, so that it need not be true.
    """
    if not _FORWARDING.isdisjoint(headers):
        raise forbidden(
            "Through a proxy this address needs a token: set TOOLPOST_TOKEN (or http.token, or callers) where the "
            "gateway runs"
        )


def _check_embedding(headers: Mapping[bytes, bytes]) -> None:
    """Refuse what a page of another origin loads as an image, a frame or the like.

    Such a request has no Origin. The page cannot read the answer, but it could have it computed, hold it open, and see whether it
    is an error.
    """
    site = headers.get(b"sec-fetch-site", b"none")
    if b"origin" not in headers and site not in (b"same-origin", b"none"):
        raise forbidden("Pages of other origins may not load this address")


def _read_token(headers: Mapping[bytes, bytes], roster: Roster, path: str) -> bytes:
    token = parse_bearer(headers)
    if token is None:
        raise unauthorized("A token is required: send `Authorization: Bearer …`", roster.challenge(path))
    return token


def parse_bearer(headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return the token of the `Authorization` header; None without one."""
    scheme, _, credentials = headers.get(b"authorization", b"").partition(b" ")
    return credentials.strip() or None if scheme.lower() == b"bearer" else None


def _parse_host(authority: str) -> str | None:
    """Return the lower-case host name of `name` or `name:port`; None if it is malformed."""
    found = _AUTHORITY.fullmatch(authority) if len(authority) <= 300 else None
    if found is None or int(found[2] or 0) > 65_535:
        return None
    name = found[1].lower()
    if name[0] == "[":
        try:
            ipaddress.IPv6Address(name[1:-1])
        except ValueError:
            return None
    return name
