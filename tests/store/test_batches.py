"""Batches of entries: a batch that is being written is not lost, whatever else refers to its task."""

import asyncio
import gc
import weakref
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from toolpost.store.batches import Batches

pytestmark = pytest.mark.anyio


async def test_a_batch_that_waits_for_its_database_is_not_collected_as_garbage() -> None:
    waiting: list[weakref.ref[asyncio.Future[None]]] = []

    async def write(_entries: Sequence[Any]) -> None:
        database = asyncio.get_running_loop().create_future()
        waiting.append(weakref.ref(database))
        await database

    batches = Batches(write)
    done = batches.add(["entry"])
    while not waiting:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()
    database = waiting[0]()
    assert database is not None
    database.set_result(None)
    with anyio.fail_after(30):
        await done
    await batches.aclose()
