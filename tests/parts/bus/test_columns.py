"""Rows are read by position: what is selected is what the fields are, in their order."""

import msgspec
import pytest

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
from toolpost.store.tables import TABLES


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


def test_a_task_has_every_column() -> None:
    for name, columns in (("bus_tasks", TASK_COLUMNS), ("bus_archive", ENDED_TASK_COLUMNS)):
        (table,) = (one for one in TABLES if one.name == name)
        assert set(table.columns) == set(columns.split(", "))
