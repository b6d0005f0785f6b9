"""Approvals as a part: rules, the guard that enforces them, tools, an HTTP API, and peers."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolpost.base.ids import PluginName
from toolpost.host.part import Part, PartDoctor
from toolpost.manifest import BUNDLED
from toolpost.parts.approvals.settings import APPROVALS, PEERS, check_approvals, read_public_key

if TYPE_CHECKING:
    from toolpost.gateway import Gateway
    from toolpost.host.host import Host, Provided
    from toolpost.parts.approvals.sample import SampleGuard
    from toolpost.parts.approvals.service import Approvals
    from toolpost.settings import Config
    from toolpost.store import Store


_log = logging.getLogger("toolpost.approvals")

MIGRATIONS: Final = "toolpost.parts.approvals.migrations"


class ApprovalsPart(Part):
    """Calls that run only once others have approved them, and votes that anyone can verify."""

    name = "approvals"
    sections = (APPROVALS, PEERS)
    commands = next(entry.commands for entry in BUNDLED if entry.name == "approvals")

    migrations = MIGRATIONS

    def must_open(self, config: "Config") -> bool:
        """Not without the guard where there are rules: every call would pass; nor without the sample that is asked for."""
        return bool(APPROVALS.of(config).rules) or config.audit.sample > 0

    def works_without_plugin(self, config: "Config") -> bool:
        """Rules are enforced, and peers asked, without the tools; keys and limits are about both."""
        return bool(APPROVALS.of(config).rules) or bool(PEERS.of(config))

    def doctor(self) -> PartDoctor:
        """Look at the rules."""
        from toolpost.parts.approvals.doctor import ApprovalsDoctor

        return ApprovalsDoctor()

    @asynccontextmanager
    async def open(self, host: "Host") -> AsyncIterator["Provided"]:
        """Bring the guard where there are rules, and the tools where their plugin is loaded."""
        from toolpost.host.host import Provided

        settings = APPROVALS.of(host.config)
        check_approvals(settings)
        is_wanted = host.wants_plugin("approvals")
        sampler = await _open_sample(host)
        if not settings.rules and not is_wanted and not PEERS.of(host.config) and sampler is None:
            yield Provided()
            return
        from toolpost.fairness import Shares
        from toolpost.parts.approvals.api import VOTE_PATH, find_waiting, routes_of
        from toolpost.parts.approvals.guard import ApprovalGuard
        from toolpost.parts.approvals.peers import Peers
        from toolpost.parts.approvals.plugin import approvals_plugin
        from toolpost.parts.approvals.rules import ApprovalRules
        from toolpost.providers.plugin_host import PluginCandidate

        approvals = make_approvals(host.config, host.store, share_of=host.callers.share_of)
        await approvals.gateway_key()
        peers = Peers(
            approvals,
            host.store,
            PEERS.of(host.config),
            host.config.resolve_network(),
            keep_s=settings.keep_days * 86_400,
            project=Path(host.config.project),
        )
        gateways: list[Gateway] = []

        def tags_of(provider: str) -> frozenset[str]:
            return gateways[0].catalog.tags.get(PluginName(provider), frozenset()) if gateways else frozenset()

        rules = ApprovalRules(settings, tags_of, confirmed=host.config.modes.confirmed)

        guard = ApprovalGuard(
            approvals,
            rules,
            catalog=lambda: gateways[0].catalog,
            principal_of=host.principal_of,
            waiting=Shares("calls that wait for approval", host.config.limits.calls, host.callers),
        )

        @asynccontextmanager
        async def run(gateway: "Gateway") -> AsyncIterator[None]:
            gateways.append(gateway)
            gateway.pipeline.forget_plans()
            if host.is_brief and not settings.rules:
                yield
                return
            async with approvals.open_sweeping(*peers.background, *([sampler.prune_often] if sampler else ())):
                yield

        yield Provided(
            plugins=[PluginCandidate(name="approvals", load=lambda: approvals_plugin(approvals, peers, host))]
            if is_wanted
            else [],
            # The sample first: it keeps calls that are then refused, too.
            guards=[
                *([sampler] if sampler is not None else []),
                *([guard] if settings.rules else []),
            ],
            routes=lambda http: routes_of(http, approvals, peers),
            pages={"Approvals": VOTE_PATH} if settings.rules or is_wanted else {},
            attention=lambda principal: find_waiting(approvals, principal),
            gauges=lambda: {"toolpost_approvals_open": ("Rounds that wait for votes.", approvals.open_rounds)},
            services=[approvals],
            run=run,
        )


async def _open_sample(host: "Host") -> "SampleGuard | None":
    if host.config.audit.sample <= 0:
        return None
    from toolpost.parts.approvals.sample import SAMPLE_KEY, SampleGuard

    return SampleGuard(host.store, host.config.audit, await host.store.keys.of(SAMPLE_KEY))


def make_approvals(config: "Config", store: "Store", **options: Any) -> "Approvals":
    """Make the approvals of a store, as they are configured; `options` are those of `Approvals`."""
    from toolpost.parts.approvals.service import Approvals

    settings = APPROVALS.of(config)
    keys = {voter: read_public_key(key, f"approvals.keys.{voter}") for voter, key in settings.keys.items()}
    return Approvals(store, keys=keys, keep_s=settings.keep_days * 86_400, **options)
