"""How the definition of each tool has changed: every one that this gateway has listed, with the time at which it was first seen.

The store keeps the first definition of a server's tool (its pin) and the lock the accepted one; what came between is kept here,
the newest `KEPT` of each tool. The tools are looked at when they have changed, not when they are called.

A server may rename its tools again and again: of each, the names that were listed last are kept, `NAMES_LIMIT` at most, with
`SIZE_LIMIT_BYTES` of definitions.
"""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio
import msgspec
from anyio import to_thread

from toolpost.base import event
from toolpost.contracts import Contract, Definition, Judgement, judge
from toolpost.discovery import SEPARATOR
from toolpost.store import NOW, Many, Row, Script, Statement, Store, marks

if TYPE_CHECKING:
    from toolpost.gateway import Gateway

_log = logging.getLogger("toolpost.console")

KEPT: Final = 20
"""Definitions that are kept of a tool: a server may send another one every second."""
NAMES_LIMIT: Final = 20_000
SIZE_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""How many names are kept of one server or plugin, and how large all their definitions may be."""
LOOK_S: Final = 2.0
BATCH: Final = 500
"""Definitions that are written in one transaction."""

_LATEST: Final = "(SELECT max(number) FROM console_definitions WHERE tool = ?1)"
_ADD: Final = (
    "INSERT INTO console_definitions (tool, number, seen_at, digest, definition)"
    f" SELECT CAST(?1 AS TEXT), coalesce({_LATEST}, 0) + 1, CAST(?2 AS DOUBLE PRECISION), CAST(?3 AS TEXT), CAST(?4 AS TEXT)"
    # Run a second time, or by two gateways of one store, it adds nothing.
    f" WHERE NOT EXISTS (SELECT 1 FROM console_definitions WHERE tool = ?1 AND digest = ?3 AND number = {_LATEST})"
    " ON CONFLICT DO NOTHING"
)
_DROP_OLD: Final = f"DELETE FROM console_definitions WHERE tool = ?1 AND number <= {_LATEST} - {KEPT}"


@dataclass(frozen=True, kw_only=True)
class Version:
    """A definition that a tool has had."""

    number: int
    seen_at: float
    definition: Definition
    judgement: Judgement | None
    """What it changed; None for the first that is kept."""


@dataclass(frozen=True, kw_only=True)
class _Written:
    """A definition as it is stored."""

    tool: str
    digest: str
    text: str


class _Latest(NamedTuple):
    """What is known of a tool without its definitions."""

    digest: str
    """Of its latest definition."""
    sizes: tuple[int, ...]
    """Of each definition that is kept, in bytes."""


class KnownNames:
    """The tools of one server or plugin, the last seen last."""

    def __init__(self) -> None:
        self._tools: dict[str, _Latest] = {}
        self._size_bytes = 0

    def has(self, tool: str, digest: str) -> bool:
        """Whether this is the latest definition of a tool, which is then noted as seen last."""
        if (latest := self._tools.pop(tool, None)) is not None:
            self._tools[tool] = latest
        return latest is not None and latest.digest == digest

    def add(self, tool: str, digest: str, size_bytes: int) -> None:
        """Note a definition as the latest of its tool."""
        sizes = self._remove(tool)
        self._tools[tool] = _Latest(digest, (*sizes, size_bytes)[-KEPT:])
        self._size_bytes += sum(self._tools[tool].sizes)

    def forget_oldest(self) -> list[str]:
        """Forget the names that there is no room for, those seen longest ago."""
        forgotten: list[str] = []
        while len(self._tools) > NAMES_LIMIT or (self._size_bytes > SIZE_LIMIT_BYTES and len(self._tools) > 1):
            forgotten.append(next(iter(self._tools)))
            self._remove(forgotten[-1])
        return forgotten

    def _remove(self, tool: str) -> tuple[int, ...]:
        latest = self._tools.pop(tool, None)
        sizes = latest.sizes if latest is not None else ()
        self._size_bytes -= sum(sizes)
        return sizes


class DefinitionHistory:
    """The definitions of all tools, in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, KnownNames] | None = None
        """By server or plugin."""

    async def run(self, gateway: "Gateway") -> None:
        """Record what changes, until cancelled."""
        looked_at: object = None
        while True:
            catalog = gateway.catalog
            if catalog is not looked_at:
                try:
                    await self.record(tool.contract for tool in catalog)
                    looked_at = catalog
                except Exception as error:  # noqa: BLE001 (a store that is away comes back; the next look tries again)
                    event(_log, logging.WARNING, "definitions not recorded", reason=str(error))
            await anyio.sleep(LOOK_S)

    async def record(self, contracts: Iterable[Contract]) -> int:
        """Store the definitions that are not the latest of their tools; returns how many there were."""
        if self._known is None:
            rows = await self._store.scripts.read(_read_sizes)
            self._known = await to_thread.run_sync(_group, rows)
        # In a thread: a server decides how many tools there are, and how long they are.
        written = await to_thread.run_sync(lambda listed: list(map(_write, listed)), list(contracts))
        known = self._known
        fresh = [each for each in written if not _find_names(known, each.tool).has(each.tool, each.digest)]
        for start in range(0, len(fresh), BATCH):
            part = fresh[start : start + BATCH]
            await self._store.scripts.run(lambda part=part: _add(part), durable=False)  # type: ignore[misc]
            for each in part:
                _find_names(known, each.tool).add(each.tool, each.digest, len(each.text))
        forgotten = [tool for names in known.values() for tool in names.forget_oldest()]
        if forgotten:
            await self._store.scripts.run(lambda: _forget(forgotten), durable=False)
        return len(fresh)

    async def changed_at(self, tools: Sequence[str]) -> dict[str, float]:
        """Return when these tools got their latest definitions, in seconds since 1970; not of those that are not known."""
        rows = await self._store.scripts.read(lambda: _read_changes(tools))
        return {tool: self._store.scripts.wall(seen_at) for tool, seen_at in rows}

    async def of_tool(self, name: str) -> list[Version]:
        """Return the definitions of a tool, the newest first, each judged against the one before it."""
        rows = await self._store.scripts.read(lambda: _read_tool(name))
        return await to_thread.run_sync(_judge_rows, rows)


def _write(contract: Contract) -> _Written:
    definition = Definition.from_contract(contract)
    # The version of the code promises nothing: a release without another change is not a change of the tool.
    promise = msgspec.structs.replace(definition, tooling_version="", meta={})
    digest = hashlib.sha256(msgspec.json.encode(promise.to_json(), order="deterministic")).hexdigest()
    return _Written(tool=contract.name, digest=digest, text=msgspec.json.encode(definition.to_json()).decode())


def _judge_rows(rows: Sequence[Row]) -> list[Version]:
    versions: list[Version] = []
    before: Definition | None = None
    for number, seen_at, text in rows:
        definition = Definition.from_json(msgspec.json.decode(text))
        judgement = None
        if before is not None:
            judgement = judge(before, definition, only_if_quick=True)
        versions.append(Version(number=number, seen_at=seen_at, definition=definition, judgement=judgement))
        before = definition
    return versions[::-1]


def _find_names(known: dict[str, KnownNames], tool: str) -> KnownNames:
    return known.setdefault(tool.partition(SEPARATOR)[0], KnownNames())


def _group(rows: Sequence[Row]) -> dict[str, KnownNames]:
    known: dict[str, KnownNames] = {}
    for tool, digest, size in rows:
        _find_names(known, tool).add(tool, digest, size)
    return known


def _read_sizes() -> Script[list[Row]]:
    """Read all definitions but their text, the newest last."""
    return (
        yield Statement(
            "SELECT tool, digest, length(definition) FROM console_definitions ORDER BY seen_at, tool, number"
        )
    )


def _forget(tools: Sequence[str]) -> Script[None]:
    yield Many("DELETE FROM console_definitions WHERE tool = ?1", [(tool,) for tool in tools])


def _read_changes(tools: Sequence[str]) -> Script[list[Row]]:
    sql = f"SELECT tool, max(seen_at) FROM console_definitions WHERE tool IN ({marks(len(tools))}) GROUP BY tool"
    return (yield Statement(sql, tuple(tools))) if tools else []


def _read_tool(name: str) -> Script[list[Row]]:
    return (
        yield Statement(
            "SELECT number, seen_at, definition FROM console_definitions WHERE tool = ?1 ORDER BY number", (name,)
        )
    )


def _add(definitions: Sequence[_Written]) -> Script[None]:
    ((now,),) = yield NOW
    yield Many(_ADD, [(each.tool, now, each.digest, each.text) for each in definitions])
    yield Many(_DROP_OLD, [(each.tool,) for each in definitions])
