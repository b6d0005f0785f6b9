"""Which process carries a call, and whether it is still there.

A process that is gone on this machine is seen at once; anywhere else it is gone when it has not renewed its ownership.
"""

import os
import secrets
from functools import cache
from pathlib import Path
from typing import NewType

import psutil

from toolpost.base.clocks import boot_id
from toolpost.upstreams.process.tree import birth_of

OwnerId = NewType("OwnerId", str)

NOBODY = OwnerId("")


def new_owner() -> OwnerId:
    """Name this process: where its number means something, its number, when it began; and something of its own."""
    return OwnerId(f"{_numbering()} {os.getpid()} {_begun(os.getpid())} {secrets.token_hex(4)}")


def is_gone(owner: OwnerId) -> bool:
    """Whether an owner is known to have ended. Of a process elsewhere nothing is known."""
    numbering, pid, begun, *_ = [*owner.split(" "), "", "", ""]
    if not numbering or numbering != _numbering() or not pid.isdigit():
        return owner == NOBODY
    return _begun(int(pid)) != begun


@cache
def _numbering() -> str:
    """Name the space that process numbers of this process belong to: this boot, this container. Empty if unknown."""
    if not boot_id():
        return ""
    try:
        return f"{boot_id()}/{Path('/proc/self/ns/pid').readlink().name}"
    except OSError:
        return ""


def _begun(pid: int) -> str:
    """Say when a process began, so that a number that was given again is not mistaken; empty if there is none."""
    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else str(birth_of(process))
    except psutil.Error:
        return ""
