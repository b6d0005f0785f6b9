"""Requests to authorization servers, whose addresses come from others: the server, its metadata, a token's issuer.

A server could name an address inside this network, and have the gateway send requests there (SSRF). So every address is resolved
here, checked, and then connected to, without a second look-up that could answer differently: addresses on the internet may be
reached, private and loopback ones only if the server's own URL has such an address in it, link-local ones (where clouds have
their credentials) never. The host name of a server allows no address, because its owner decides the address. Origins that the
operator has configured may be anywhere. Redirects are not followed.

Carried by our own HTTP client; requests and responses are the values of httpx2 that the SDK's functions take and return.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from toolpost.base.urls import split_url
from toolpost.contracts.errors import BadConfiguration, UpstreamUnavailable
from toolpost.net import DIRECT, HttpClient, HttpFailed, Network
from toolpost.protocol.shape import SDK_VALUE_LIMIT

if TYPE_CHECKING:
    import httpx2

FETCH_S: Final = 15.0
BODY_LIMIT: Final = 256 * 1024
"""Metadata and keys of the largest providers have a tenth of it. With `SDK_VALUE_LIMIT`, the SDK's models read it in 30 ms."""

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_UNKNOWN: Final = (ipaddress.IPv6Network("64:ff9b:1::/48"), ipaddress.IPv6Network("::/96"))
"""Local NAT64 and IPv4-compatible addresses: they carry IPv4 addresses of which nothing can be said."""
_HINT: Final = "if that is right, set `auth.issuer` of this server to the authorization server's issuer"
_OWN_HEADERS: Final = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})


class Reach(IntEnum):
    """How far inside an address is."""

    INTERNET = 0
    PRIVATE = 1
    LOOPBACK = 2
    NEVER = 3


def reach_of(address: str) -> Reach:
    """Classify an IP address; one that carries an IPv4 address inside counts as that."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return reach_of(str(inner))
    if ip.is_loopback:
        return Reach.LOOPBACK
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified or any(ip in network for network in _UNKNOWN):
        return Reach.NEVER
    if ip.is_global and not (isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local):
        return Reach.INTERNET
    # The rest of the reserved ranges that a packet can be sent to at all.
    return Reach.NEVER if isinstance(ip, ipaddress.IPv4Address) and ip.is_reserved else Reach.PRIVATE


class UnsafeUrl(UpstreamUnavailable):
    """A URL that came from a server leads where the gateway must not go."""


class Fetcher:
    """Sends requests to the addresses that one server's authorization involves."""

    def __init__(self, configured: Iterable[str], network: Network = DIRECT, *, exempt: Iterable[str] = ()) -> None:
        """`configured` are the URLs that the operator has set: their origins may be anywhere.

        An address inside in one of them lets others lead there, too; one in `exempt` does not: an issuer inside must not open
        the network to a server on the internet. Behind a proxy of `network`, names are the proxy's to resolve and to refuse;
        addresses in URLs are checked here.
        """
        self._network = network
        origins = {_origin_of(url) for url in configured}
        reaches = [_reach_of_host(host) for _, host, _ in origins]
        # A server that the operator has put inside may have its authorization server there; one on the internet may not.
        inside = [reach for reach in reaches if reach in (Reach.PRIVATE, Reach.LOOPBACK)]
        self._allowed = max(inside, default=Reach.INTERNET)
        self._origins = origins | {_origin_of(url) for url in exempt}
        self._hosts = {(host, port) for _, host, port in self._origins}

    async def send(self, request: "httpx2.Request") -> "httpx2.Response":
        """Return the response of any status; raises `UnsafeUrl`, or `UpstreamUnavailable` if there is none."""
        import httpx2

        url = str(request.url)
        await self.check(url)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN_HEADERS}
        try:
            async with (
                asyncio.timeout(FETCH_S),
                HttpClient(
                    url, headers=headers, body_limit=BODY_LIMIT, network=self._network, resolve=self._resolve
                ) as client,
            ):
                response = await client.request(request.method, request.content)
        except (HttpFailed, BadConfiguration, TimeoutError) as error:
            reason = str(error) or f"it did not answer within {FETCH_S:g} s"
            failure = UpstreamUnavailable(f"The authorization server at {_shown(url)} cannot be used: {reason}")
            failure.was_sent = not isinstance(error, HttpFailed) or error.sent
            raise failure from error
        if sum(map(response.body.count, (b",", b"[", b"{"))) > SDK_VALUE_LIMIT:
            raise UpstreamUnavailable(
                f"The authorization server at {_shown(url)} cannot be used: its answer has more than {SDK_VALUE_LIMIT:,} values"
            )
        return httpx2.Response(
            response.status,
            headers=[
                # Without its charset: `punycode` decodes in quadratic time, 256 KB in eight seconds. JSON is UTF-8.
                (name, value.partition(b";")[0] if name == b"content-type" else value)
                for name, value in response.headers.items()
                if name != b"content-encoding"
            ],
            content=response.body,
            request=request,
        )

    async def check(self, url: str) -> None:
        """Raise `UnsafeUrl` for a URL that must not be fetched, or not be shown to a browser.

        Names are not resolved here: a browser has its own resolver, and each connection of the gateway is checked.
        """
        scheme, host, _ = origin = _origin_of(url)
        if origin in self._origins:
            return
        if scheme not in ("http", "https") or not host:
            raise UnsafeUrl(f"The authorization server names a URL that is not HTTP: {_shown(url)}")
        reach = _reach_of_host(host)
        if reach is not None and reach > self._allowed:
            raise self._make_error(host)
        if scheme == "http" and self._allowed is Reach.INTERNET:
            raise UnsafeUrl(f"The authorization server names a URL without TLS: {_shown(url)}", hint=_HINT)

    async def _resolve(self, host: str, port: int) -> str:
        # Called for each connection, which then goes to the very address that was checked: between a check of a name and a
        # second look-up, its owner could let it lead elsewhere (DNS rebinding).
        addresses = await _look_up(host, port)
        if (host.lower(), port) in self._hosts:
            return addresses[0]
        for address in addresses:
            # All of them: a name with one public and one private address is no mistake.
            if reach_of(address) > self._allowed:
                raise self._make_error(host)
        return addresses[0]

    def _make_error(self, host: str) -> UnsafeUrl:
        return UnsafeUrl(
            f"The authorization server is at `{host[:200]}`, an address inside this network, and the server's `url` has none",
            hint=_HINT,
        )


def _reach_of_host(host: str) -> Reach | None:
    """Classify the host of a URL; None for a name, of which only its owner knows where it leads."""
    try:
        return reach_of("127.0.0.1" if host == "localhost" or host.endswith(".localhost") else host)
    except ValueError:
        return None


async def _look_up(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _origin_of(url: str) -> tuple[str, str, int]:
    try:
        parts = split_url(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return parts.scheme, (parts.hostname or "").lower(), port
    except ValueError:
        return "", "", 0


def _shown(url: str) -> str:
    """Show where a URL leads, without its path and query: they may contain a secret."""
    scheme, host, port = _origin_of(url)
    is_default = port == {"https": 443, "http": 80}.get(scheme)
    return f"{scheme}://{host}{'' if is_default else f':{port}'}"[:200]
