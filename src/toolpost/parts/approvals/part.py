"""Approvals as a part: rules, the guard that enforces them, tools, an HTTP API, and peers."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from toolpost.base.ids import PluginName
from toolpost.parts.approvals.settings import APPROVALS, PEERS, check_approvals, read_public_key
from toolpost.parts.base import Part, PartDoctor
from toolpost.registry import BUNDLED

if TYPE_CHECKING:
    from toolpost.gateway import Gateway
    from toolpost.host import Host, Provided
    from toolpost.parts.approvals.service import Approvals
    from toolpost.settings import Config
    from toolpost.store import Store


MIGRATIONS: Final = "toolpost.parts.approvals.migrations"


class ApprovalsPart(Part):
    """Calls that run only once others have approved them, and votes that anyone can verify."""

    name = "approvals"
    sections = (APPROVALS, PEERS)
    commands = next(entry.commands for entry in BUNDLED if entry.name == "approvals")

    migrations = MIGRATIONS

    def must_open(self, config: "Config") -> bool:
        """Not without the guard where there are rules: every call would pass."""
        return bool(APPROVALS.of(config).rules)

    def doctor(self) -> PartDoctor:
        """Look at the rules."""
        from toolpost.parts.approvals.doctor import ApprovalsDoctor

        return ApprovalsDoctor()

    @asynccontextmanager
    async def open(self, host: "Host") -> AsyncIterator["Provided"]:
        """Bring the guard where there are rules, and the tools where their plugin is loaded."""
        from toolpost.host import Provided

        settings = APPROVALS.of(host.config)
        check_approvals(settings)
        is_wanted = host.wants_plugin("approvals")
        if not settings.rules and not is_wanted and not PEERS.of(host.config):
            yield Provided()
            return
        from toolpost.parts.approvals.api import routes_of
        from toolpost.parts.approvals.guard import ApprovalGuard
        from toolpost.parts.approvals.peers import Peers
        from toolpost.parts.approvals.plugin import approvals_plugin
        from toolpost.parts.approvals.rules import Rules
        from toolpost.providers.plugin_host import PluginCandidate

        approvals = make_approvals(host.config, host.store)
        await approvals.gateway_key()
        peers = Peers(approvals, host.store, PEERS.of(host.config))
        gateways: list[Gateway] = []

        def tags_of(provider: str) -> frozenset[str]:
            return gateways[0].catalog.tags.get(PluginName(provider), frozenset()) if gateways else frozenset()

        @asynccontextmanager
        async def run(gateway: "Gateway") -> AsyncIterator[None]:
            gateways.append(gateway)
            gateway.pipeline.forget_plans()
            if host.is_brief and not settings.rules:
                yield
                return
            async with approvals.open_sweeping(*peers.exchanges):
                yield

        yield Provided(
            plugins=[PluginCandidate(name="approvals", load=lambda: approvals_plugin(approvals, peers, host))]
            if is_wanted
            else [],
            guards=[ApprovalGuard(approvals, Rules(settings, tags_of))] if settings.rules else [],
            routes=lambda http: routes_of(http, approvals, peers),
            gauges=lambda: {"toolpost_approvals_open": ("Rounds that wait for votes.", approvals.open_rounds)},
            services=[approvals],
            run=run,
        )


def make_approvals(config: "Config", store: "Store") -> "Approvals":
    """Make the approvals of a store, as they are configured."""
    from toolpost.parts.approvals.service import Approvals

    settings = APPROVALS.of(config)
    keys = {voter: read_public_key(key, f"approvals.keys.{voter}") for voter, key in settings.keys.items()}
    return Approvals(store, limit=settings.limit, keys=keys)


def encode_key(public: bytes) -> str:
    """Write a public key as settings have it."""
    return base64.b64encode(public).decode()
