"""What every attack uses: the `attack` mark, the CPU time of an event loop, and the growth of a cost with its input.

Wall time says little on a shared machine. A blocked event loop is seen in the CPU time of its thread, and a bad algorithm in
the ratio between the costs of two input sizes; 50 ms of wall time are asserted only in soak, where a test runs alone.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

Attacker = Literal["stranger", "caller", "server", "repository", "agent", "operator"]


def attack(attacker: Attacker, attempt: str, holds: str) -> pytest.MarkDecorator:
    """Mark a test as an attack: who tries what, and what holds. Write literals: the docs page is read from the source."""
    return pytest.mark.attack(attacker=attacker, attempt=attempt, holds=holds)


def loop_cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process's main thread, which runs its event loop, has used so far (Linux)."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def thread_cpu_s(work: Callable[[], Any]) -> float:
    """Return the CPU seconds that `work` takes in this thread: the least of three runs."""

    def once() -> float:
        started = time.thread_time()
        work()
        return time.thread_time() - started

    return min(once() for _ in range(3))


def assert_linear(cost_s: Callable[[int], float], *, small: int, factor: int = 8, floor_s: float = 0.002) -> None:
    """Assert that `cost_s(size)` grows with its input at most linearly, with a factor of 2.5 for noise.

    `floor_s` is added to the smaller cost, because below a millisecond the noise is larger than the cost. A quadratic cost grows
    by the square of `factor`, so it is far above the bound once it is well over the floor: choose `small` accordingly.
    """
    least = cost_s(small)
    allowed = 2.5 * factor * (least + floor_s)
    most = cost_s(small * factor)
    for _ in range(2):
        if most > allowed:  # the moment may have been a busy one
            most = min(most, cost_s(small * factor))
    assert most <= allowed, (
        f"{small * factor:,} units cost {most:.3f} s, {small:,} cost {least:.3f} s: more than linear"
    )
