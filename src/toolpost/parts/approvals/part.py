"""Approvals as a part: rules, the guard that enforces them, tools, an HTTP API, and peers."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolpost.base import PluginName
from toolpost.parts.approvals.settings import APPROVALS, PEERS, check_approvals, read_public_key

if TYPE_CHECKING:
    from toolpost.parts import Host
    from toolpost.parts.approvals.sample import SampleGuard
    from toolpost.parts.approvals.service import Approvals
    from toolpost.settings import Config
    from toolpost.store import Store


_log = logging.getLogger("toolpost.approvals")


def is_required(config: "Config") -> bool:
    """Not without the guard where there are rules: every call would pass; nor without the sample that is asked for."""
    return bool(APPROVALS.of(config).rules) or config.audit.sample > 0


def works_without_plugin(config: "Config") -> bool:
    """Rules are enforced, and peers asked, without the tools; keys and limits are about both."""
    return bool(APPROVALS.of(config).rules) or bool(PEERS.of(config))


@asynccontextmanager
async def open_approvals(host: "Host") -> AsyncIterator[Sequence[object]]:
    """Bring the guard where there are rules, and the tools where their plugin is loaded."""
    settings = APPROVALS.of(host.config)
    check_approvals(settings)
    is_wanted = host.wants_plugin("approvals")
    sampler = await _open_sample(host)
    if not settings.rules and not is_wanted and not PEERS.of(host.config) and sampler is None:
        yield ()
        return
    from toolpost.fairness import Shares
    from toolpost.parts import ActionItems, Api, Background, ConsoleView, Gauges, PluginCandidate, Service
    from toolpost.parts.approvals.api import VOTE_PATH, find_waiting, routes_of
    from toolpost.parts.approvals.guard import ApprovalGuard
    from toolpost.parts.approvals.peers import Peers
    from toolpost.parts.approvals.plugin import approvals_plugin
    from toolpost.parts.approvals.rules import ApprovalRules

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

    def tags_of(provider: str) -> frozenset[str]:
        return host.gateway.catalog.tags.get(PluginName(provider), frozenset())

    rules = ApprovalRules(settings, tags_of, confirmed=host.config.modes.confirmed)

    guard = ApprovalGuard(
        approvals,
        rules,
        gateway=lambda: host.gateway,
        principal_of=host.principal_of,
        waiting=Shares("calls that wait for approval", host.config.limits.calls, host.callers),
    )

    @asynccontextmanager
    async def run() -> AsyncIterator[None]:
        if host.for_one_command and not settings.rules:
            yield
            return
        async with approvals.open_sweeping(*peers.background, *([sampler.prune_often] if sampler else ())):
            yield

    contributions: list[object] = [
        Api(lambda http: routes_of(http, approvals, peers)),
        ActionItems(lambda principal: find_waiting(approvals, principal)),
        Gauges(lambda: {"toolpost_approvals_open": ("Rounds that wait for votes.", approvals.open_rounds)}),
        Service(approvals),
        Background(run),
    ]
    if is_wanted:
        contributions.append(PluginCandidate(name="approvals", load=lambda: approvals_plugin(approvals, peers, host)))
    if settings.rules or is_wanted:
        contributions.append(ConsoleView("Approvals", VOTE_PATH, Path(__file__).parent / "view/approvals.js"))
    # The sample before the rules: it keeps calls that are then refused, too.
    if sampler is not None:
        contributions.append(sampler)
    if settings.rules:
        contributions.append(guard)
    yield contributions


async def _open_sample(host: "Host") -> "SampleGuard | None":
    if host.config.audit.sample <= 0:
        return None
    from toolpost.parts.approvals.sample import SAMPLE_KEY, SampleGuard

    return SampleGuard(host.store, host.config, await host.store.keys.of(SAMPLE_KEY))


def make_approvals(config: "Config", store: "Store", **options: Any) -> "Approvals":
    """Make the approvals of a store, as they are configured; `options` are those of `Approvals`."""
    from toolpost.parts.approvals.service import Approvals

    settings = APPROVALS.of(config)
    keys = {voter: read_public_key(key, f"approvals.keys.{voter}") for voter, key in settings.keys.items()}
    return Approvals(store, keys=keys, keep_s=settings.keep_days * 86_400, **options)
