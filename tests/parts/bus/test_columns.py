"""Rows are read by position: what is selected is what the fields are, in their order."""

import msgspec
import pytest

from toolpost.parts.bus.tasks import (
    COLUMNS,
    ENDED_COLUMNS,
    LEASE_COLUMNS,
    OFFERED_COLUMNS,
    POLLING_COLUMNS,
    WORKER_COLUMNS,
    EndedTask,
    Lease,
    Offered,
    PollingWorker,
    Task,
    Worker,
)
from toolpost.store.tables import TABLES


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        (Lease, LEASE_COLUMNS),
        (Offered, OFFERED_COLUMNS),
        (Task, COLUMNS),
        (EndedTask, ENDED_COLUMNS),
        (PollingWorker, POLLING_COLUMNS),
        (Worker, WORKER_COLUMNS),
    ],
)
def test_fields_stand_as_columns_do(kind: type[msgspec.Struct], columns: str) -> None:
    assert list(kind.__struct_fields__) == columns.split(", ")


def test_a_task_has_every_column() -> None:
    for name, columns in (("bus_tasks", COLUMNS), ("bus_archive", ENDED_COLUMNS)):
        (table,) = (one for one in TABLES if one.name == name)
        assert set(table.columns) == set(columns.split(", "))
