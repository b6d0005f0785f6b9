"""Who may come in: Host and Origin are checked, a token is asked for where anybody is known by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolpost.contracts.errors import BadConfiguration
from toolpost.endpoints.refusal import Refused, forbidden, misdirected, unauthorized
from toolpost.endpoints.roster import Admission, Roster

__all__ = ["LOCAL_HOSTS", "Access", "Refused", "check_guarded"]

LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


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

    async def admitted(self, headers: Mapping[bytes, bytes]) -> Admission:
        """Say who is calling, or turn them away."""
        return self.known(headers) or await self.roster.judge(_token_in(headers, self.roster))

    def check_names(self, headers: Mapping[bytes, bytes]) -> None:
        """Turn away whoever means another server, or comes from a page that may not."""
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        if (origin := headers.get(b"origin")) is not None:
            self._check_origin(origin.decode("latin-1"))

    def _check_host(self, host: str) -> None:
        """Only names that this server goes by: another one is a page that had its name rebound to us."""
        name = _without_port(host)
        if name in LOCAL_HOSTS or name == self.host or host in self.allowed_hosts or name in self.allowed_hosts:
            return
        if self.host not in LOCAL_HOSTS and not self.allowed_hosts:
            # Off localhost a server has names that it cannot know, and every request shows a token.
            return
        raise misdirected("The Host header names another server")

    def _check_origin(self, origin: str) -> None:
        _, _, host = origin.partition("://")
        if origin in self.allowed_origins or (host and _without_port(host) in LOCAL_HOSTS):
            return
        raise forbidden("Pages of this origin may not call tools")


def check_guarded(host: str, *, is_open: bool) -> None:
    """Refuse to serve everybody who reaches us, where that is more than this machine."""
    if is_open and host not in LOCAL_HOSTS:
        raise BadConfiguration(
            f"Listening on `{host}` needs a token: anybody who reaches it could call every tool.",
            hint="set TOOLPOST_TOKEN (or http.token_file, or [callers.NAME]), or listen on 127.0.0.1",
        )


def _token_in(headers: Mapping[bytes, bytes], roster: Roster) -> bytes:
    scheme, _, shown = headers.get(b"authorization", b"").partition(b" ")
    token = shown.strip()
    if scheme.lower() != b"bearer" or not token:
        raise unauthorized("A token is needed: send `Authorization: Bearer …`", roster.challenge())
    return token


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.rsplit(":", 1)[0] if host.count(":") == 1 else host
