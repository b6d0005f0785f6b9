"""The disks of a gateway that are nearly full: a full one stops the store, and with it every call."""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from anyio import to_thread

from toolpost.base.action_items import ActionItem

LEAST_BYTES: Final = 1_000_000_000


async def list_full_disks(folders: Iterable[Path]) -> list[ActionItem]:
    """Return an item for each disk with less than `LEAST_BYTES` free, among those that these folders are on."""
    # In a thread: a folder may be on another machine.
    return await to_thread.run_sync(_list_full_disks, [*folders])


def _list_full_disks(folders: Iterable[Path]) -> list[ActionItem]:
    found: dict[int, ActionItem] = {}
    for folder in folders:
        # The folder may not have been made yet.
        there = next((path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()), None)
        if there is None:
            continue
        with suppress(OSError):
            free = shutil.disk_usage(there).free
            if free < LEAST_BYTES:
                found[there.stat().st_dev] = _describe(there, free)
    return [*found.values()]


def _describe(folder: Path, free: int) -> ActionItem:
    return ActionItem(
        kind="disk",
        title=f"The disk of {folder} has {free / 1_000_000:,.0f} MB left",
        text="Store and log are on it. Calls fail when it is full.",
        command="toolpost store status",
        is_urgent=True,
    )
