"""Fuzzing: kept inputs and a short, deterministic burst of new ones in the normal run, ten CPU minutes in soak."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.hostile.attacks import attack
from tests.hostile.fuzz import TARGET_NAMES
from tests.hostile.fuzz.mutation import mutated
from tests.hostile.fuzz.targets import TARGETS, corpus_of, timed

ROOT = Path(__file__).parents[2]
SOAK_CPU_S = 600
BURST = 100
"""How many inputs of a target are made in the normal run: half a second, most of which Hypothesis takes to make them."""


@pytest.mark.wire
@attack(
    "stranger",
    "sends bytes that were made to break readers: messages, calls, HTTP heads, schemas, lock files, settings, server-sent events",
    "each is read or refused with the reader's own error, in bounded time, as a second, independent reader understands it",
)
@pytest.mark.wire
@pytest.mark.parametrize("target", TARGET_NAMES)
def test_kept_inputs(target: str) -> None:
    check = timed(TARGETS[target])
    for name, data in corpus_of(target).items():
        try:
            check(data)
        except Exception as error:
            raise AssertionError(f"tests/hostile/corpus/{target}/{name}") from error


@pytest.mark.wire  # the fast path is fuzzed behind a socket
@pytest.mark.parametrize("target", TARGET_NAMES)
def test_new_inputs(target: str) -> None:
    check = timed(TARGETS[target])

    @settings(
        derandomize=True,
        max_examples=BURST,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(mutated(list(corpus_of(target).values())))
    def fuzz(data: bytes) -> None:
        check(data)

    fuzz()


@pytest.mark.wire
@attack(
    "stranger",
    "goes on making such bytes for ten CPU minutes, led by the code that they reach (Atheris, else Hypothesis)",
    "the same holds",
)
@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", TARGET_NAMES)
def test_inputs_without_end(target: str) -> None:
    share_s = SOAK_CPU_S / len(TARGET_NAMES)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.hostile.fuzz", target, "--cpu-seconds", str(share_s)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr[-4000:]
