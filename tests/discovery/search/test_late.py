"""numpy is loaded when the first index is prepared, and not before."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.wire


@pytest.mark.parametrize(
    "code",
    [
        "import toolpost.discovery.search",
        "import toolpost.app, toolpost.gateway",
        "from toolpost.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass",
    ],
)
def test_numpy_is_not_loaded_before_it_is_needed(code: str) -> None:
    asked = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('numpy loaded:', 'numpy' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert asked.stdout.splitlines()[-1] == "numpy loaded: False"
