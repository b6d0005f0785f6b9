"""Rows are read by position: what is selected is what the fields are, in their order."""

import msgspec
import pytest

from toolpost.parts.bus import PART
from toolpost.parts.bus.tasks import (
    ENDED_TASK_COLUMNS,
    LEASE_COLUMNS,
    POLLING_COLUMNS,
    TASK_COLUMNS,
    WORKER_COLUMNS,
    WORKER_TASK_COLUMNS,
    BusTask,
    EndedTask,
    LeasedTask,
    PollingWorker,
    Worker,
    WorkerTask,
)
from toolpost.store.part_migrations import find_part_tables, open_part_store


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        (LeasedTask, LEASE_COLUMNS),
        (WorkerTask, WORKER_TASK_COLUMNS),
        (BusTask, TASK_COLUMNS),
        (EndedTask, ENDED_TASK_COLUMNS),
        (PollingWorker, POLLING_COLUMNS),
        (Worker, WORKER_COLUMNS),
    ],
)
def test_fields_stand_as_columns_do(kind: type[msgspec.Struct], columns: str) -> None:
    assert list(kind.__struct_fields__) == columns.split(", ")


@pytest.mark.anyio
async def test_a_task_has_every_column() -> None:
    async with open_part_store("sqlite::memory:", PART.name, PART.migrations) as store:
        tables = {table.name: set(table.columns) for table in await find_part_tables(store)}

    assert tables["bus_tasks"] == set(TASK_COLUMNS.split(", "))
    assert tables["bus_archive"] == set(ENDED_TASK_COLUMNS.split(", "))
