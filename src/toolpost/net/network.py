"""How this machine reaches others: which certificates are trusted and shown, and through which proxy.

The same for outgoing connections of every client: `HttpClient`, and those of the MCP SDK.
"""

import ipaddress
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from toolpost.contracts.errors import BadConfiguration

Trust = Literal["openssl", "system"]

FROM_ENVIRONMENT: Final = "env"
NOT_BY_PROXY: Final = ("localhost", "127.0.0.0/8", "::1")
"""What is not reached through a proxy unless `no_proxy` is set: this machine."""

SCHEMES: Final = ("http", "socks4", "socks5", "socks5h")


@dataclass(frozen=True, kw_only=True)
class Network:
    """How outgoing connections are made."""

    ca_file: Path | None = None
    """Certificates of authorities to trust, besides those that `trust` names."""
    client_cert: Path | None = None
    client_key: Path | None = None
    """The private key of `client_cert`; None if it is in the same file."""
    trust: Trust = "openssl"
    """Whose list of trusted authorities is used: that of OpenSSL, or the operating system's own verification."""
    proxy: str | None = field(default=None, repr=False)
    """The URL of a proxy, which may contain a password; `env` for that of the environment; None for no proxy."""
    no_proxy: tuple[str, ...] = NOT_BY_PROXY
    """Hosts, domains (`.example.com`), addresses and networks that are reached without a proxy; `*` is all."""

    def make_ssl_context(self) -> ssl.SSLContext:
        """Load all certificates, which takes some milliseconds; raises `BadConfiguration` for a file that cannot be used."""
        if self.trust == "openssl":
            context = ssl.create_default_context()
        else:
            import truststore

            context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(["http/1.1"])
        try:
            if self.ca_file is not None:
                context.load_verify_locations(self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise _make_file_error("ca_file", self.ca_file, error) from error
        try:
            if self.client_cert is not None:
                # Without a password a protected key would be asked for on the terminal.
                context.load_cert_chain(self.client_cert, self.client_key, password="")
        except (OSError, ssl.SSLError) as error:
            raise _make_file_error("client_cert", self.client_cert, error) from error
        return context

    def find_proxy(self, url: str, environment: Mapping[str, str] = os.environ) -> str | None:
        """Return the URL of the proxy for a URL, None if it is reached without one; raises `BadConfiguration`."""
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        if self.proxy is None or matches_any(host, self.no_proxy):
            return None
        if self.proxy != FROM_ENVIRONMENT:
            return check_proxy(self.proxy, "proxy")
        if matches_any(host, _read(environment, "no_proxy").replace(",", " ").split()):
            return None
        found = _read(environment, f"{parts.scheme}_proxy") or _read(environment, "all_proxy")
        return check_proxy(found if "://" in found else f"http://{found}", f"{parts.scheme}_proxy") if found else None


def check_proxy(url: str, place: str) -> str:
    """Return the URL of a proxy; raises `BadConfiguration`, without the URL, if it cannot be used."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port is not None
    except ValueError:
        is_usable = False
    if not is_usable:
        raise BadConfiguration(
            f"{place} is not the URL of a proxy.",
            hint="write http://host:port, socks5://host:port or socks5h://host:port (the proxy resolves names), with"
            " user:password@ before the host if needed",
        )
    return url


def matches_any(host: str, patterns: "tuple[str, ...] | list[str]") -> bool:
    """Whether a host is one of these: a name, a domain and all below it, an address, or in a network."""
    return any(_matches(host, pattern.strip().lower().removeprefix("*.").lstrip(".")) for pattern in patterns)


def _matches(host: str, pattern: str) -> bool:
    if pattern == "*":
        return True
    if not pattern:
        return False
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(pattern.strip("[]"), strict=False)
    except ValueError:
        return host == pattern or host.endswith(f".{pattern}")


def _read(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""


def _make_file_error(setting: str, path: Path | None, error: Exception) -> BadConfiguration:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return BadConfiguration(
        f"The {setting} {path} cannot be used: {reason}.",
        hint="it must be a PEM file; a private key must have no password",
    )


DIRECT: Final = Network()
"""Without a proxy, and with the authorities that OpenSSL trusts."""
