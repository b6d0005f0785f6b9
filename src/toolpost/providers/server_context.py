"""Shared by the providers of all servers of a gateway."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolpost.credentials.gateway_logins import GatewayLogins
from toolpost.credentials.server_tokens import ServerTokens
from toolpost.credentials.values import add_owner_values
from toolpost.credentials.vault import Vault
from toolpost.providers.contract_watch import ContractWatch
from toolpost.upstreams.notifications import Notification
from toolpost.upstreams.server_requests import Sampler
from toolpost.upstreams.spec import ServerLimits, ServerSpec

if TYPE_CHECKING:
    from toolpost.providers.server_provider import ServerProvider


@dataclass(frozen=True, kw_only=True)
class ServerAccess:
    """The means to reach servers."""

    vault: Vault
    """Has the values that specifications refer to."""
    server_tokens: ServerTokens
    login_key: bytes
    """Signs the addresses of logins."""
    other_logins: Callable[[], Mapping[str, ServerSpec]] = dict
    """Returns what people log in to here without a server."""

    async def add_owner_values(self, spec: ServerSpec) -> ServerSpec:
        """Add its owner's values to a specification."""
        return await add_owner_values(spec, self.vault)


@dataclass(frozen=True, kw_only=True)
class ServerListeners:
    """The reactions of a gateway to its servers."""

    on_change: Callable[[Collection[str]], None]
    """Gets the names of servers whose tools changed; no name if only the description of a server changed."""
    on_owner_change: Callable[[str, str], None]
    """Gets an owner, and a server that lists that owner other tools now. Callers who share their credentials are no owners."""
    on_notification: Callable[[Notification], None]
    """Gets what servers send unasked."""
    sampler: Sampler | None = None
    """Answers sampling where a client does not."""


@dataclass(frozen=True, kw_only=True)
class ProviderListeners:
    """The reactions to the tools of one server."""

    on_seen: "Callable[[ServerProvider], None]"
    """Called whenever the tools were listed."""
    on_change: "Callable[[ServerProvider], None]"
    """Called when they changed."""
    on_described: Callable[[], None]
    """Called when the server's own description changed and its tools did not."""


@dataclass(frozen=True, kw_only=True)
class ServerContext:
    """The dependencies of a provider beside the specification of its server."""

    limits: ServerLimits
    default_timeout_s: float
    watch: ContractWatch
    access: ServerAccess
    logins: GatewayLogins
    tools: ProviderListeners
    servers: ServerListeners
