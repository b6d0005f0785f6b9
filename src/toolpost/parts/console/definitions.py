"""How the definition of each tool has changed: every one that this gateway has listed, with the time at which it was first seen.

The store keeps the first definition of a server's tool (its pin) and the lock the accepted one; what came between is kept here,
the newest `KEPT` of each tool. The tools are looked at when they have changed, not when they are called.
"""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio
import msgspec
from anyio import to_thread

from toolpost.base.events import event
from toolpost.contracts.compatibility import Definition, Judgement, is_quick, judge, make_cut_short_judgement
from toolpost.contracts.contract import Contract
from toolpost.store import Store
from toolpost.store.scripts import NOW, Many, Row, Script, Statement

if TYPE_CHECKING:
    from toolpost.gateway import Gateway

_log = logging.getLogger("toolpost.console")

KEPT: Final = 20
"""Definitions that are kept of a tool: a server may send another one every second."""
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


class DefinitionHistory:
    """The definitions of all tools, in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._latest: dict[str, str] | None = None

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
        if self._latest is None:
            self._latest = dict(await self._store.scripts.read(_read_latest))
        # In a thread: a server decides how many tools there are, and how long they are.
        written = await to_thread.run_sync(lambda listed: list(map(_write, listed)), list(contracts))
        fresh = [each for each in written if self._latest.get(each.tool) != each.digest]
        for start in range(0, len(fresh), BATCH):
            part = fresh[start : start + BATCH]
            await self._store.scripts.run(lambda part=part: _add(part), durable=False)  # type: ignore[misc]
            self._latest |= {each.tool: each.digest for each in part}
        return len(fresh)

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
            judgement = judge(before, definition) if is_quick(before, definition) else make_cut_short_judgement()
        versions.append(Version(number=number, seen_at=seen_at, definition=definition, judgement=judgement))
        before = definition
    return versions[::-1]


def _read_latest() -> Script[list[tuple[str, str]]]:
    rows = yield Statement(
        "SELECT tool, digest FROM console_definitions AS d"
        " WHERE number = (SELECT max(number) FROM console_definitions WHERE tool = d.tool)"
    )
    return [(str(tool), str(digest)) for tool, digest in rows]


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
