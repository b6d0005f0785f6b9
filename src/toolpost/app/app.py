"""A running gateway without its endpoints. `open.py` makes it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from toolpost.admin.monitor import Monitor
from toolpost.app.refresh import CatalogRefresher
from toolpost.contracts.errors import CapabilityMissing
from toolpost.discovery.finder import Finder
from toolpost.endpoints.auth.delegated_tokens import DelegatedTokens
from toolpost.endpoints.auth.roster import Roster
from toolpost.endpoints.calls import CallHandler
from toolpost.endpoints.sdk.lazy import LazySdk
from toolpost.fairness import EndpointShares
from toolpost.gateway import Gateway
from toolpost.host.contributions import Contributions, Service
from toolpost.metrics import Gauges
from toolpost.providers.plugins import Plugins
from toolpost.providers.servers import Servers
from toolpost.settings import Config
from toolpost.store import Store

if TYPE_CHECKING:
    from toolpost.audit.upkeep import AuditUpkeep

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class App:
    """A running gateway without its endpoints."""

    config: Config
    store: Store
    plugins: Plugins
    servers: Servers
    gateway: Gateway
    call_handler: CallHandler
    sdk: LazySdk
    shares: EndpointShares
    roster: Roster
    """The callers that HTTP admits; empty until HTTP is served."""
    changes: CatalogRefresher
    finder: Finder
    contributions: Contributions
    tokens: DelegatedTokens
    upkeep: "AuditUpkeep | None"
    """Exports and retention of the audit; None where neither is configured."""

    def service(self, kind: type[T]) -> T:
        """Return a service that an open part offers, by its type; raise `CapabilityMissing` if none does."""
        for service in self.contributions.all(Service):
            if isinstance(service.object, kind):
                return service.object
        raise CapabilityMissing(f"No part that is open offers a {kind.__name__}.")

    @property
    def monitor(self) -> Monitor:
        """Its health and metrics."""
        of_audit = [("audit", Gauges(self.upkeep.read_gauges))] if self.upkeep is not None else []
        return Monitor(
            store=self.store,
            plugins=self.plugins,
            servers=self.servers,
            gateway=self.gateway,
            finder=self.finder,
            gauges=[*self.contributions.named(Gauges), *of_audit],
        )
