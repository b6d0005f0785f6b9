"""Who may come in: Host and Origin are checked, a token is asked for where one is set."""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from toolpost.contracts.caller import Caller
from toolpost.contracts.errors import BadConfiguration, ErrorCode
from toolpost.contracts.ids import CallerId
from toolpost.protocol.rpc import INVALID_REQUEST, ProtocolError

LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


class Refused(Exception):
    """A request that is turned away before anybody reads its body."""

    def __init__(
        self, status: int, code: ErrorCode, message: str, *, headers: list[tuple[bytes, bytes]] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = [(b"www-authenticate", b"Bearer")] if status == 401 else headers
        self.body = ProtocolError(INVALID_REQUEST, message, data={"code": code.value}).as_response()


@dataclass(frozen=True, kw_only=True)
class Access:
    """The rules of one HTTP endpoint."""

    host: str
    token: str | None = field(default=None, repr=False)
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.token is None and self.host not in LOCAL_HOSTS:
            raise BadConfiguration(
                f"Listening on `{self.host}` needs a token: anybody who reaches it could call every tool.",
                hint="set TOOLPOST_TOKEN (or http.token_file), or listen on 127.0.0.1",
            )

    def caller_of(self, headers: Mapping[bytes, bytes]) -> Caller:
        """Say who is calling, or turn them away."""
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        if (origin := headers.get(b"origin")) is not None:
            self._check_origin(origin.decode("latin-1"))
        if self.token is None:
            return _LOCAL
        if not self._has_token(headers.get(b"authorization", b"")):
            raise Refused(401, ErrorCode.UNAUTHORIZED, "A token is needed: send `Authorization: Bearer …`")
        return _TOKEN

    def _check_host(self, host: str) -> None:
        """Only names that this server goes by: another one is a page that had its name rebound to us."""
        name = _without_port(host)
        if name in LOCAL_HOSTS or name == self.host or host in self.allowed_hosts or name in self.allowed_hosts:
            return
        if self.host not in LOCAL_HOSTS and not self.allowed_hosts:
            # Off localhost a server has names that it cannot know, and every request shows a token.
            return
        raise Refused(421, ErrorCode.FORBIDDEN, "The Host header names another server")

    def _check_origin(self, origin: str) -> None:
        _, _, host = origin.partition("://")
        if origin in self.allowed_origins or (host and _without_port(host) in LOCAL_HOSTS):
            return
        raise Refused(403, ErrorCode.FORBIDDEN, "Pages of this origin may not call tools")

    def _has_token(self, authorization: bytes) -> bool:
        scheme, _, shown = authorization.partition(b" ")
        assert self.token is not None
        return scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(), self.token.encode())


_LOCAL = Caller(id=CallerId("local"), transport="http")
_TOKEN = Caller(id=CallerId("token"), transport="http")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.rsplit(":", 1)[0] if host.count(":") == 1 else host
