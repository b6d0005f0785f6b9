"""A tool whose calls are worth an approval, and gateways that require it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from mcp import Client

from tests.ways import IN_MEMORY, STATELESS, Way
from toolpost import Context, Plugin
from toolpost.app import App, open_app
from toolpost.base.caller import OPERATOR
from toolpost.parts.approvals.rounds import Choice
from toolpost.parts.approvals.service import Approvals, RoundView, parse_round_id
from toolpost.parts.approvals.settings import ApprovalSettings, RuleSettings
from toolpost.settings import Config
from toolpost.settings.model import StoreSettings
from toolpost.store import Store
from toolpost.store.scripts import Statement
from toolpost.testing import error_of

MEMORY = Way("memory", STATELESS)


def bank(paid: list[Any], *, currency: str = "EUR") -> Plugin:
    """A plugin that notes what was paid; another currency is another contract."""
    plugin = Plugin("bank", version="1.0.0")

    @plugin.tool(annotations={"readOnlyHint": False}, description=f"Pay an amount in {currency}.")
    async def pay(amount: int, ctx: Context) -> int:
        paid.append(amount)
        if amount == 13:
            raise RuntimeError("no luck")
        return len(paid)

    @plugin.tool(annotations={"readOnlyHint": True})
    async def balance() -> int:
        """Return what was paid in total."""
        return sum(paid)

    return plugin


def requiring(config: Config = IN_MEMORY, *, url: str | None = None, settings: Any = None, **rule: Any) -> Config:
    """Return a configuration with one rule."""
    if settings is None:
        settings = ApprovalSettings(rules={"money": RuleSettings(**{"tools": ["bank__pay"]} | rule)})
    config = msgspec.structs.replace(config, parts={**config.parts, "approvals": settings})
    return config if url is None else msgspec.structs.replace(config, store=StoreSettings(url=url))


@asynccontextmanager
async def served(
    config: Config, *plugins: Plugin, way: Way = MEMORY, **options: Any
) -> AsyncIterator[tuple[App, Client]]:
    async with open_app(config, plugins=plugins, **options) as app, way.client_of(app) as client:
        yield app, client


def approvals_of(app: App) -> Approvals:
    return app.service(Approvals)


async def cast(app: App, round_id: str, choice: Choice = "approve") -> RoundView:
    """Vote as the person at the command line."""
    return (await approvals_of(app).vote(parse_round_id(round_id), choice, by=OPERATOR)).view


async def expire(store: Store) -> None:
    """Let the time of all rounds be over, without waiting for it."""

    def move() -> Any:
        yield Statement("UPDATE approval_rounds SET expires_at = expires_at - 100")

    await store.scripts.run(move)


async def refused(client: Client, tool: str = "bank__pay", **arguments: Any) -> Any:
    """Call a tool that must be refused for want of an approval; returns the error object."""
    error = error_of(await client.call_tool(tool, arguments))
    assert error["code"] == "FORBIDDEN", error
    return error
