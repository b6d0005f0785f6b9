"""What the gateway has seen first of its servers' tools, read out of the store for whoever compares or locks."""

from collections.abc import Mapping

import msgspec

from toolpost.cli.failures import warn
from toolpost.contracts.compatibility import Definition
from toolpost.contracts.errors import ToolpostError
from toolpost.contracts.lockfile import LockedTool
from toolpost.settings import Config
from toolpost.store import open_store, store_exists


async def pinned_tools(config: Config) -> dict[str, LockedTool]:
    """Read the pins of the servers that are configured; none, with a warning, where the store cannot be read."""
    try:
        return await _read(config)
    except ToolpostError as error:
        warn(f"what was seen first of the tools is not known: {error.message}")
        return {}


async def _read(config: Config) -> dict[str, LockedTool]:
    if config.store_url == "sqlite::memory:" or not await store_exists(config.store_url):
        return {}
    found: dict[str, LockedTool] = {}
    async with open_store(config.store_url) as store:
        for server in config.servers:
            found |= _locked(server, await store.pins.of_server(server))
    return found


def _locked(server: str, pins: Mapping[str, object]) -> dict[str, LockedTool]:
    found = {}
    for name, written in pins.items():
        try:
            found[name] = LockedTool.of(server, Definition.from_json(written))
        except msgspec.ValidationError as error:
            warn(f"what was seen first of `{name}` cannot be read: {error}")
    return found
