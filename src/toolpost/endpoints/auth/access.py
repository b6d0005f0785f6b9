"""Who may come in: Host and Origin are checked, a token is asked for where anybody is known by one."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolpost.contracts.errors import BadConfiguration, ErrorCode
from toolpost.endpoints.auth.roster import Admission, Roster
from toolpost.endpoints.http.refusal import Refused, forbidden, misdirected, unauthorized
from toolpost.endpoints.http.request import HttpRequest

__all__ = ["LOCAL_HOSTS", "Access", "Refused", "check_guarded"]

LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})

_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]+)*\.?)(?::([0-9]{1,5}))?")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


@dataclass(frozen=True, kw_only=True)
class Access:
    """The rules of one HTTP endpoint."""

    host: str
    roster: Roster
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_guarded(self.host, is_open=self.roster.members.is_open)

    def known(self, headers: Mapping[bytes, bytes]) -> Admission | None:
        """Let somebody in who is known already; None for one whose token has to be looked into, by `admitted`."""
        self.check_names(headers)
        if self.roster.everybody is not None:
            shown = headers.get(b"authorization")
            lent = self.roster.find_lent(shown[7:]) if shown is not None else None
            return lent or self.roster.everybody
        return self.roster.find(_token_in(headers, self.roster))

    async def admitted(self, request: HttpRequest) -> Admission:
        """Say who is calling, or turn them away."""
        headers = request.headers
        admission = self.known(headers) or await self.roster.judge(_token_in(headers, self.roster))
        request.note_admitted()
        return admission

    def check_names(self, headers: Mapping[bytes, bytes]) -> None:
        """Turn away whoever means another server, or comes from a page that may not."""
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        if (origin := headers.get(b"origin")) is not None:
            self._check_origin(origin.decode("latin-1"))

    def _check_host(self, host: str) -> None:
        """Only names that this server goes by: another one is a page that had its name rebound to us."""
        name = _host_in(host)
        if name is None:
            problem = "is malformed" if host else "is missing"
            raise Refused(
                400, ErrorCode.INVALID_REQUEST, f"The Host header {problem}: send `Host: name` or `name:port`"
            )
        if name in LOCAL_HOSTS or name == self.host or host in self.allowed_hosts or name in self.allowed_hosts:
            return
        if self.host not in LOCAL_HOSTS and not self.allowed_hosts:
            # Off localhost a server has names that it cannot know, and every request shows a token.
            return
        raise misdirected(
            "The Host header names another server: a name that this one goes by, as behind a proxy, belongs into "
            "http.allowed_hosts"
        )

    def _check_origin(self, origin: str) -> None:
        scheme, _, host = origin.partition("://")
        if origin in self.allowed_origins or (_SCHEME.fullmatch(scheme) and _host_in(host) in LOCAL_HOSTS):
            return
        raise forbidden("Requests with this Origin header are not allowed")


def check_guarded(host: str, *, is_open: bool) -> None:
    """Refuse to serve everybody who reaches us, where that is more than this machine."""
    if is_open and host not in LOCAL_HOSTS:
        raise BadConfiguration(
            f"Listening on `{host}` needs a token: without one, any client on the network could call every tool.",
            hint="set TOOLPOST_TOKEN (or http.token_file, or [callers.NAME]), or listen on 127.0.0.1",
        )


def _token_in(headers: Mapping[bytes, bytes], roster: Roster) -> bytes:
    scheme, _, shown = headers.get(b"authorization", b"").partition(b" ")
    token = shown.strip()
    if scheme.lower() != b"bearer" or not token:
        raise unauthorized("A token is needed: send `Authorization: Bearer …`", roster.challenge())
    return token


def _host_in(authority: str) -> str | None:
    """Return the name in `name` or `name:port`, in small letters; None if that is not what it is."""
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
