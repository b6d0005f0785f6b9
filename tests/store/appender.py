"""A process that appends: run by the tests with a path, a number and an entry, told apart by its name.

Prints the id of each call once it is committed.
"""

import asyncio
import json
import sys

from msgspec.structs import replace

from toolpost.audit import AuditEntry
from toolpost.base.ids import CallId
from toolpost.store import Store, open_store


async def append(store: Store, entry: AuditEntry, *, is_only_call: bool = False) -> None:
    await store.audit.append(entry, is_only_call=is_only_call)
    print(entry.call_id, flush=True)


async def main(path: str, count: str, name: str, entry: str, how: str) -> None:
    like = AuditEntry(**json.loads(entry))
    async with open_store(path) as store:
        for number in range(int(count) if how == "alone" else 0):
            await append(store, replace(like, call_id=CallId(f"{name}-{number}")), is_only_call=True)
            await asyncio.sleep(0)
        for start in range(0, int(count), 10):
            await asyncio.gather(
                *(append(store, replace(like, call_id=CallId(f"{name}-{start + n}"))) for n in range(10))
            )


asyncio.run(main(*sys.argv[1:]))
