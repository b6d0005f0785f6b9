"""Finds and ends processes that escaped a reaper, by parentage and by a cookie in the environment (psutil). Part of `tree`."""

import contextlib
import logging
import signal
import time
from collections.abc import Iterable

import psutil

from toolpost.processes.command import COOKIE

log = logging.getLogger("toolpost.process_tree")


def find_descendants(pid: int) -> list[psutil.Process]:
    """Return all descendants of a process; after its end they cannot be found this way."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def find_tree(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants; empty if it is gone."""
    try:
        return [psutil.Process(pid), *find_descendants(pid)]
    except psutil.NoSuchProcess:
        return []


def end_strays(known: list[psutil.Process], cookie: str, grace_s: float, until: float) -> None:
    """End the known processes and all that carry the cookie: SIGTERM once, SIGKILL after `grace_s`, until `until`.

    On a busy machine the time may be over before the first look is: they are sent SIGKILL once in any case.
    """
    graced_until = min(time.monotonic() + grace_s, until - 0.5)
    terminated: set[psutil.Process] = set()
    is_over = False
    while (strays := _find_alive(known, cookie)) and not is_over:
        is_graced = time.monotonic() < graced_until
        for stray in strays - terminated if is_graced else strays:
            with contextlib.suppress(psutil.Error):  # It is gone, or cannot be killed, which is logged below.
                stray.send_signal(signal.SIGTERM if is_graced else signal.SIGKILL)
        terminated |= strays
        time.sleep(0.05)
        is_over = not is_graced and time.monotonic() >= until
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
    """Log a process that could not be ended. A warning: the call has its answer and the gateway goes on, but a person has to end
    the process, so that a debug line would be too little.
    """
    log.warning("process %d could not be ended: %s", pid, reason, extra={"pid": pid})
