"""Run the tests that failed in a whole run once more, alone: what CI does last, and `scripts/test` never does.

A test that passes now is printed as `UNSTEADY`. It is treated as a race in the product until the opposite is shown, and recorded
in `unsteady.toml` with a hypothesis. Many failures are no accident, and are not tried again.
"""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
FAILED = HERE.parent / ".pytest_cache" / "v" / "cache" / "lastfailed"
"""Written by pytest at the end of a run with failures."""
AT_MOST = 10
TESTS_FAILED = 1
"""An exit code of pytest."""


def read_failed(file: Path = FAILED) -> list[str]:
    """Return the tests that failed in the last run; none if there was no such run."""
    return sorted(json.loads(file.read_text())) if file.exists() else []


def read_recorded(file: Path = HERE / "unsteady.toml") -> dict[str, str]:
    """Return the hypothesis for each recorded test."""
    return {test["test"]: test["hypothesis"] for test in tomllib.loads(file.read_text()).get("tests", [])}


def describe(test: str, recorded: dict[str, str]) -> str:
    """Return the line that is printed for a test that failed and passes alone."""
    return f"UNSTEADY {test}: {recorded.get(test, 'not recorded; add it to tests/unsteady.toml with a hypothesis')}"


def main() -> int:
    failed = read_failed()
    if not failed or len(failed) > AT_MOST:
        return TESTS_FAILED
    print(f"\n== {len(failed)} failed: once more, alone", flush=True)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    code = subprocess.run([sys.executable, "-m", "pytest", *failed], env=environment, check=False).returncode
    recorded, failed_again = read_recorded(), set(read_failed())
    for test in failed:
        if code in (0, TESTS_FAILED) and test not in failed_again:
            print(describe(test, recorded))
    return code


if __name__ == "__main__":
    sys.exit(main())
