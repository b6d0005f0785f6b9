"""What an import loads: packages that authors and parts import must not load servers, their processes, or logins."""

import subprocess
import sys

import pytest

HEAVY = (
    "toolpost.upstreams.supervisor",
    "toolpost.credentials.oauth",
    "toolpost.store.sqlite",
    "toolpost.endpoints.http",
)
SCRIPT = (
    "import importlib, sys; importlib.import_module(sys.argv[1]); print(*(n for n in sys.modules if n in sys.argv[2:]))"
)


pytestmark = pytest.mark.wire


@pytest.mark.parametrize("package", ["authoring", "discovery", "middleware", "gateway"])
def test_an_import_loads_neither_servers_nor_logins(package: str) -> None:
    command = [sys.executable, "-c", SCRIPT, f"toolpost.{package}", *HEAVY]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()

    assert loaded == []


@pytest.mark.parametrize(("package", "limit"), [("authoring", 60), ("gateway", 132)])
def test_an_import_is_small(package: str, limit: int) -> None:
    script = f"import sys, toolpost.{package}; print(*(name for name in sys.modules if name.startswith('toolpost.')))"
    command = [sys.executable, "-c", script]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()

    assert len(loaded) <= limit, loaded
