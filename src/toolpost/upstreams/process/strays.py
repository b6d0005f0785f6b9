"""Who got away from a reaper, found by a sweep with psutil: by parentage and by a cookie in the environment.

Part of `process_tree`, which is the one front door: only it and its other parts import this.
"""

import contextlib
import logging
import signal
import time
from collections.abc import Iterable

import psutil

from toolpost.upstreams.process.command import COOKIE

log = logging.getLogger("toolpost.process_tree")


def find_descendants(pid: int) -> list[psutil.Process]:
    """Return everyone below a process, before it ends and they can no longer be told from others."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def find_tree(pid: int) -> list[psutil.Process]:
    """Return a process and everyone below it; nobody if it is gone."""
    try:
        return [psutil.Process(pid), *find_descendants(pid)]
    except psutil.NoSuchProcess:
        return []


def end_strays(known: list[psutil.Process], cookie: str, grace_s: float, until: float) -> None:
    """End who got away from the reaper: who was below it before, and who carries the cookie."""
    graced_until = min(time.monotonic() + grace_s, until - 0.5)
    asked: set[psutil.Process] = set()
    while (strays := _find_alive(known, cookie)) and time.monotonic() < until:
        is_graced = time.monotonic() < graced_until
        for stray in strays - asked if is_graced else strays:
            with contextlib.suppress(psutil.Error):  # Who is gone is gone; who refused is warned of below, once.
                stray.send_signal(signal.SIGTERM if is_graced else signal.SIGKILL)
        asked |= strays
        time.sleep(0.05)
    for stray in strays:
        warn_unkilled(stray.pid, "it is still there")


def _find_alive(known: Iterable[psutil.Process], cookie: str) -> set[psutil.Process]:
    found = set(known)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(COOKIE) == cookie:
                found |= {process, *process.children(recursive=True)}
    return {process for process in found if _is_alive(process)}


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def warn_unkilled(pid: int, reason: str) -> None:
    """Tell the log of a process that stays."""
    log.warning("process %d could not be ended: %s", pid, reason, extra={"pid": pid})
