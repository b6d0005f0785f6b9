"""Fuzzing: whatever the bytes are, a reader either takes them or refuses them in the one way that it promises.

targets     what is fuzzed: for each reader a function of bytes that raises if a promise is broken
fast_path   the target that needs a running gateway
mutation    inputs made from those of the corpus, deterministic and shrinkable (Hypothesis)
__main__    `python -m tests.hostile.fuzz TARGET --cpu-seconds N`: Atheris where it is installed, else Hypothesis

Inputs are in `tests/hostile/corpus/TARGET/`. One that has found a bug is kept there, and every one is replayed in the normal run.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

Check = Callable[[bytes], None]

CORPUS: Final = Path(__file__).parents[1] / "corpus"
TARGET_NAMES: Final = ("messages", "fast_path", "heads", "schemas", "locks", "settings", "events")
