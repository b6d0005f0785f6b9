"""`python -m tests.hostile.fuzz TARGET [--cpu-seconds N]`: fuzz a target, with Atheris if it is installed, else with Hypothesis.

Atheris finds more, because it sees which input reaches new code: `pip install atheris` (Linux and macOS). An input that breaks a
promise is written to `tests/hostile/corpus/TARGET/`, and the exit code is not 0.
"""

import argparse
import hashlib
import importlib.util
import itertools
import os
import shutil
import sys
import tempfile
import time
import traceback

from tests.hostile.fuzz import CORPUS, TARGET_NAMES, Check

HAS_ATHERIS = importlib.util.find_spec("atheris") is not None


def main() -> None:
    # The reference reads whole numbers of any length, as the parser does.
    sys.set_int_max_str_digits(0)
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz")
    parser.add_argument("target", choices=TARGET_NAMES)
    parser.add_argument("--cpu-seconds", type=float, default=60.0)
    parser.add_argument(
        "--engine", choices=("atheris", "hypothesis"), default="atheris" if HAS_ATHERIS else "hypothesis"
    )
    options = parser.parse_args()
    engine = fuzz_with_atheris if options.engine == "atheris" else fuzz_with_hypothesis
    engine(options.target, options.cpu_seconds)


def fuzz_with_atheris(target: str, cpu_s: float) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

    # What is imported within is instrumented; the validator, httptools and msgspec are not Python.
    with atheris.instrument_imports(include=["toolpost"]):
        from tests.hostile.fuzz.targets import TARGETS, timed

    check = _keeping(target, timed(TARGETS[target]))
    runs = itertools.count(1)
    ends_at = time.process_time() + cpu_s
    # libFuzzer writes every input that reaches new code into the first folder, and reads the others.
    folder = tempfile.mkdtemp(prefix="toolpost-fuzz-")

    def test_one_input(data: bytes) -> None:
        check(data)
        number = next(runs)
        if time.process_time() > ends_at:
            _say(target, "Atheris", number)
            shutil.rmtree(folder)
            os._exit(0)

    arguments = ["-max_len=8192", "-rss_limit_mb=2048", "-timeout=30", "-verbosity=0", "-print_final_stats=0"]
    atheris.Setup([sys.argv[0], *arguments, folder, str(CORPUS / target)], test_one_input)
    atheris.Fuzz()


def fuzz_with_hypothesis(target: str, cpu_s: float) -> None:
    """Draw inputs until the time is over."""
    from hypothesis import HealthCheck, given, seed, settings

    from tests.hostile.fuzz.mutation import mutated
    from tests.hostile.fuzz.targets import TARGETS, corpus_of, timed

    check = timed(TARGETS[target])
    corpus = list(corpus_of(target).values())
    runs = itertools.count(1)
    ends_at = time.process_time() + cpu_s
    number = 0
    for turn in itertools.count():

        @seed(turn)
        @settings(max_examples=1000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(mutated(corpus))
        def fuzz(data: bytes) -> None:
            nonlocal number
            number = next(runs)
            check(data)

        fuzz()
        if time.process_time() > ends_at:
            break
    _say(target, "Hypothesis", number)


def _keeping(target: str, check: Check) -> Check:
    """Return the check, which writes down what it fails on."""

    def keeping(data: bytes) -> None:
        try:
            check(data)
        except Exception:
            path = CORPUS / target / f"found-{hashlib.sha256(data).hexdigest()[:12]}"
            path.write_bytes(data)
            traceback.print_exc()
            print(f"written to {path}", file=sys.stderr, flush=True)
            os._exit(1)

    return keeping


def _say(target: str, engine: str, runs: int) -> None:
    print(
        f"{target}: {runs:,} inputs in {time.process_time():.0f} CPU seconds with {engine}", file=sys.stderr, flush=True
    )


if __name__ == "__main__":
    main()
