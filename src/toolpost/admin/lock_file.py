"""The lock file as it is read and written, and the tools as they would be written to it."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from toolpost.admin.files import write_atomically
from toolpost.contracts.compatibility import Definition
from toolpost.contracts.compatibility.definition import name_instructions
from toolpost.contracts.errors import BadLock, NotFound
from toolpost.contracts.lockfile import LockedTool, LockedTools, lock_text, parse_lock
from toolpost.discovery.automatic import OWNER, eval_contract, mcp_contract
from toolpost.providers import Provider
from toolpost.providers.server_provider import ServerProvider
from toolpost.settings import Config
from toolpost.settings.lock import read_lock_text
from toolpost.store.known_tools import Pins
from toolpost.terminal.failures import suggest


class LockFile:
    """A lock file as it was when it was read; `tools` is None if there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = read_lock_text(path)
        self.tools: dict[str, LockedTool] | None = None
        if self.text is not None:
            self.tools = parse_lock(self.text, name=path.name)

    @classmethod
    def of(cls, config: Config, path: Path | None) -> "LockFile":
        """Read the file at `path`, else the project's."""
        return cls(path if path is not None else config.lock_path)

    def require_tools(self) -> dict[str, LockedTool]:
        """Return the locked tools; raises `BadLock` if there is no lock."""
        if self.tools is None:
            raise BadLock(
                f"Lock file not found: {self.path}.",
                hint="run `toolpost lock` to create it, and commit it with the configuration",
            )
        return self.tools

    def replace(self, tools: LockedTools) -> bool:
        """Write these tools atomically; returns False if the file already says so."""
        text = lock_text(tools)
        if text == self.text:
            return False
        write_atomically(self.path, text, before=self.text)
        return True


def is_named(tool: str, names: Iterable[str]) -> bool:
    """Whether one of these patterns matches a tool."""
    return any(fnmatchcase(tool, name) for name in names)


def accept_changes(locked: LockedTools, live: LockedTools, names: Sequence[str]) -> dict[str, LockedTool]:
    """Return the locked tools with those that `names` match as they are now; raises `NotFound` for a name without a match."""
    known = locked.keys() | live.keys()
    for name in names:
        if not any(fnmatchcase(tool, name) for tool in known):
            hint = suggest(name, known, "`toolpost tools` lists all of them")
            raise NotFound(f"Unknown tool `{name}`.", hint=hint)
    kept = {name: tool for name, tool in locked.items() if not is_named(name, names)}
    return kept | {name: tool for name, tool in live.items() if is_named(name, names)}


def list_tools(config: Config, providers: Iterable[Provider]) -> dict[str, LockedTool]:
    """Return all tools, instructions and skills as they are now, quarantined ones and the gateway's own among them."""
    tools: dict[str, LockedTool] = {}
    for provider in providers:
        for name, tool in {**provider.tools, **provider.quarantined}.items():
            tools[name] = LockedTool.of(tool.provider, Definition.from_contract(tool.contract))
        if isinstance(provider, ServerProvider) and provider.profile.instructions:
            definition = provider.define(name_instructions(provider.name))
            tools[definition.name] = LockedTool.of(provider.name, definition)
        if isinstance(provider, ServerProvider):
            tools |= {name: LockedTool.of(provider.name, one) for name, one in provider.skills.definitions.items()}
    return list_gateway_tools(config) | tools


def list_gateway_tools(config: Config) -> dict[str, LockedTool]:
    """Return `automatic_mcp` and `automatic_eval` where they are listed, without the server names in their descriptions."""
    if config.discovery.mode == "all":
        return {}
    contracts = (eval_contract(), mcp_contract(()))
    return {own.name: LockedTool.of(OWNER, Definition.from_contract(own)) for own in contracts}


async def read_pins(pins: Pins, servers: Iterable[str], on_problem: Callable[[str], None]) -> dict[str, LockedTool]:
    """Read the pins of these servers; one that cannot be read is told to `on_problem`, and left out."""
    found: dict[str, LockedTool] = {}
    for server in servers:
        for name, written in (await pins.of_server(server)).items():
            try:
                found[name] = LockedTool.of(server, Definition.from_json(written))
            except msgspec.ValidationError as error:
                on_problem(f"the pin of `{name}` cannot be read: {error}")
    return found
