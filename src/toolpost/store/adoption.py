"""Adopts stores from before each package had its own tables: of commit 502978a1 and later ones, kernel migrations 21 to 24.

Until then the kernel's migrations made the tables of the bus and of threads too, and some parts had several steps. Now the kernel
and each part begin with one step, so the ledgers of an earlier store name steps that are not there any more. Its tables are the
same except for what `migrations/adoption/` changes. When it is opened, these steps are applied, and both ledgers are written
anew, in one transaction under the lock of the kernel's migrations. Parts need not be installed for it.

This module and its folder can be deleted once there is no such store. Nothing else depends on them.
"""

import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Final

from toolpost.contracts.errors import BadConfiguration
from toolpost.store.migrate import Kind, Migration, list_migrations, read_migrations, split_statements
from toolpost.store.scripts import Script, Statement

OLDEST: Final = 21
"""The kernel's last migration at commit 502978a1."""
NEWEST: Final = 24

_OLDEST_OF_PARTS: Final = {"approvals": 3, "authorization_server": 2, "trail": 2}
"""The last migrations of parts at commit 502978a1, where they had several."""

_UP_TO_OLDEST: Final[Mapping[Kind, str]] = {
    "sqlite": "747344c2f3e974e82d790bf1103de046e27d029550bf125c5612189c9d485368",
    "postgres": "dc237cb610593e8e3818a67b895443bc0ab66f47ea31acc8341161832d729371",
}
"""The digest of the digests of the kernel's migrations up to the oldest."""

_FIRST_STEPS: Final[Mapping[str, tuple[str, Mapping[Kind, str]]]] = {
    "agents": (
        "threads",
        {
            "sqlite": "sha256:7cffbfd2198edf578fcdbd7cc701e1288d53a8a2fc8b0685119ccc7cf109a4ac",
            "postgres": "sha256:0f542cbdcdbe7df439bf2853b7f11181bb8b270f8b37b06ddb1496aac4273cdb",
        },
    ),
    "approvals": (
        "approvals",
        {
            "sqlite": "sha256:16d68b61d8ccb621bb4c4cbf863aa4e8476764ec41f99c9d40df8c85e5d2ec8f",
            "postgres": "sha256:c9642f78a3f002703d243e713747c026f2ef9826a07af3b5dbdf9e09b1cf8ee9",
        },
    ),
    "authorization_server": (
        "authorization_server",
        {
            "sqlite": "sha256:7f8a6545e7cefee00184a039fbd75427972483e913808d74dbb6ed16a9c14149",
            "postgres": "sha256:39d3d5727d838f77c47943bbf7c837ea64452d29c9d6a20623b69d8bd48faf00",
        },
    ),
    "bus": (
        "bus",
        {
            "sqlite": "sha256:8f878b233a1bbfee71816544ef819b932f681efc1cb270071591a11e1d1ae4d0",
            "postgres": "sha256:b1f92b8b4c9b4e53ba083d62dd63fa36d9bcf932fb241ca272589f03e434e339",
        },
    ),
    "trail": (
        "trail",
        {
            "sqlite": "sha256:dbee0f1c6b5ac27d0ed66e11ef6c47bc9e6db4b131a6f5a587001ab16e5be8e4",
            "postgres": "sha256:3db3ac46a51a767e5a3ff5fc918bf500c8012e02b001bb5f0622f1d8e9931200",
        },
    ),
}
"""The names and digests of what replaces the steps of parts (a test compares them): a part that is not installed has no files."""


def adopt(kind: Kind) -> Script[None]:
    """Adopt the store if it is an earlier one. Raises `BadConfiguration` if it is too old.

    The tables of the ledger must be there. To be run in the transaction that applies the kernel's migrations, before them.
    """
    ledger = yield Statement("SELECT number, name, digest FROM migrations ORDER BY number")
    if not ledger or ledger[0][1] != "audit":
        return
    applied = {int(number): str(digest) for number, _, digest in ledger}
    folder = files("toolpost.store").joinpath("migrations", "adoption", kind)
    yield from _apply(_find_missing(applied, read_migrations(folder), kind))
    yield Statement("UPDATE part_migrations SET part = 'authorization_server' WHERE part = 'login'")
    yield Statement("DELETE FROM part_migrations WHERE part = 'export'")
    rows = yield Statement("SELECT part, max(number) FROM part_migrations GROUP BY part")
    parts = {str(part): int(number) for part, number in rows}
    for part, oldest in _OLDEST_OF_PARTS.items():
        if parts.get(part, oldest) < oldest:
            raise _make_too_old()
    if "approvals" in parts:
        steps = read_migrations(folder.joinpath("approvals"))
        yield from _apply([step for step in steps if step.number > parts["approvals"]])
    yield from _rewrite_ledgers(kind, {"agents", "bus", *parts})


def _find_missing(applied: Mapping[int, str], steps: Sequence[Migration], kind: Kind) -> list[Migration]:
    if max(applied) < OLDEST:
        raise _make_too_old()
    if max(applied) > NEWEST:
        raise BadConfiguration(
            f"the store was written by another Toolpost: it has migration {max(applied)}",
            hint="open it with the Toolpost that wrote it, or name another store",
        )
    known = {step.number: step.digest for step in steps}
    digests = "".join(applied.get(number, "") for number in range(1, OLDEST + 1))
    is_ours = sha256(digests.encode()).hexdigest() == _UP_TO_OLDEST[kind]
    if not is_ours or any(known[number] != digest for number, digest in applied.items() if number > OLDEST):
        raise BadConfiguration(
            "the store was made by other migrations than ours",
            hint="it comes from an unreleased Toolpost: use another store, or move this one away",
        )
    return [step for step in steps if step.number not in applied]


def _apply(steps: Sequence[Migration]) -> Script[None]:
    for step in steps:
        for sql in split_statements(step.sql):
            yield Statement(sql)


def _rewrite_ledgers(kind: Kind, parts: set[str]) -> Script[None]:
    first = list_migrations(kind)[0]
    yield Statement("DELETE FROM migrations WHERE number > 1")
    yield Statement("UPDATE migrations SET name = ?1, digest = ?2 WHERE number = 1", (first.name, first.digest))
    for part in sorted(parts & _FIRST_STEPS.keys()):
        name, digests = _FIRST_STEPS[part]
        yield Statement("DELETE FROM part_migrations WHERE part = ?1", (part,))
        yield Statement(
            "INSERT INTO part_migrations (part, number, name, digest, applied_at) VALUES (?1, 1, ?2, ?3, ?4)",
            (part, name, digests[kind], time.time()),
        )


def _make_too_old() -> BadConfiguration:
    return BadConfiguration(
        "the store was last opened by a Toolpost older than commit 502978a1",
        hint="back it up, open it once with `toolpost serve` of commit ffe55334, and then with this version",
    )
