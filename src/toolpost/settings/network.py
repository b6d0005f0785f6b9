"""`[network]` and `[servers.NAME.network]`: certificates and proxies of outgoing connections."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from toolpost.base.redaction import forms_of, remember_secrets
from toolpost.contracts.errors import BadConfiguration
from toolpost.net.network import FROM_ENVIRONMENT, NOT_BY_PROXY, Network, Trust, check_proxy
from toolpost.settings.marks import ADVANCED


class NetworkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How outgoing connections are made: certificates and proxies."""

    ca_file: Annotated[
        str | None, Meta(description="PEM file of certificate authorities to trust in addition", extra=ADVANCED)
    ] = None
    client_cert: Annotated[
        str | None, Meta(description="PEM file of the certificate that is shown to servers", extra=ADVANCED)
    ] = None
    client_key: Annotated[
        str | None, Meta(description="PEM file of its private key; the same file, if not set", extra=ADVANCED)
    ] = None
    trust: Annotated[
        Trust | None,
        Meta(
            description="authorities that are trusted: those of `openssl` (if not set), or of the operating `system`",
            extra=ADVANCED,
        ),
    ] = None
    proxy: Annotated[
        str | None,
        Meta(
            description="http://, socks4://, socks5:// or socks5h:// URL of a proxy; ${VAR} is replaced; `env`: that of"
            " HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY; empty: none",
            extra=ADVANCED,
        ),
    ] = None
    no_proxy: Annotated[
        list[str] | None,
        Meta(
            description="hosts, domains, addresses and networks that are reached without the proxy; if not set: "
            + ", ".join(NOT_BY_PROXY),
            extra=ADVANCED,
        ),
    ] = None

    def __repr__(self) -> str:
        """Leave out the proxy: its URL may contain a password."""
        return "NetworkSettings(…)"


UNSET: Final = NetworkSettings()


def resolve_network(
    own: NetworkSettings, common: NetworkSettings, fill: Callable[[str, str], str], project: Path
) -> Network:
    """Return the settings of one server, or of everything else, over those for all.

    `fill` replaces the variables of a text, and is given the setting's name. Raises `BadConfiguration`.
    """

    def choose(name: str) -> str | None:
        given = getattr(own, name)
        return fill(given if given is not None else getattr(common, name) or "", f"network.{name}") or None

    def path_of(name: str) -> Path | None:
        return project / Path(chosen).expanduser() if (chosen := choose(name)) is not None else None

    proxy = choose("proxy")
    if proxy is not None and proxy != FROM_ENVIRONMENT:
        check_proxy(proxy, "network.proxy")
        _, separator, password = proxy.partition("://")[2].rpartition("@")[0].partition(":")
        remember_secrets(forms_of(password) if separator else ())
    no_proxy = own.no_proxy if own.no_proxy is not None else common.no_proxy
    # A certificate of its own goes with a key of its own.
    has_own_cert = own.client_cert is not None
    if choose("client_cert") is None and choose("client_key") is not None:
        raise BadConfiguration(
            "network.client_key has no effect: there is no certificate of this key.", hint="set network.client_cert"
        )
    return Network(
        ca_file=path_of("ca_file"),
        client_cert=path_of("client_cert"),
        client_key=None if has_own_cert and own.client_key is None else path_of("client_key"),
        trust=own.trust or common.trust or "openssl",
        proxy=proxy,
        no_proxy=NOT_BY_PROXY if no_proxy is None else tuple(no_proxy),
    )
