"""Which process runs a task, and whether it still exists.

A process of this machine that has ended is detected at once; one of another machine by its ownership, which it does not renew.
"""

import os
import secrets
from functools import cache
from pathlib import Path
from typing import NewType

import psutil

from toolpost.base.clocks import boot_id
from toolpost.processes.tree import birth_of

OwnerId = NewType("OwnerId", str)

NO_OWNER = OwnerId("")


def new_owner() -> OwnerId:
    """Return an id of this process: the space of its pid, the pid, its start time, and a random part."""
    return OwnerId(f"{_pid_namespace()} {os.getpid()} {_start_time(os.getpid())} {secrets.token_hex(4)}")


def is_gone(owner: OwnerId) -> bool:
    """Whether an owner is known to have ended; False for a process of another machine, of which nothing is known."""
    namespace, pid, started, *_ = [*owner.split(" "), "", "", ""]
    if not namespace or namespace != _pid_namespace() or not pid.isdigit():
        return owner == NO_OWNER
    return _start_time(int(pid)) != started


@cache
def _pid_namespace() -> str:
    """Return an id of this boot and container, within which pids are unique; empty if unknown."""
    if not boot_id():
        return ""
    try:
        return f"{boot_id()}/{Path('/proc/self/ns/pid').readlink().name}"
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """Return the start time of a process, so that a reused pid is not mistaken for it; empty if there is none."""
    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else str(birth_of(process))
    except psutil.Error:
        return ""
