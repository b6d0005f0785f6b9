"""What an import loads: packages that authors and parts import must not load servers, their processes, or logins."""

import subprocess
import sys

import pytest

HEAVY = (
    "toolpost.upstreams.supervisor",
    "toolpost.credentials.server_tokens",
    "toolpost.store.sqlite",
    "toolpost.endpoints.http",
)
SCRIPT = (
    "import importlib, sys; importlib.import_module(sys.argv[1]); print(*(n for n in sys.modules if n in sys.argv[2:]))"
)


pytestmark = pytest.mark.wire


MODULES = ("authoring", "discovery.automatic", "discovery.views", "gateway", "middleware.pipeline")
"""Modules behind the doors: a door itself loads nothing before a name is asked for."""


@pytest.mark.parametrize("module", MODULES)
def test_an_import_loads_neither_servers_nor_logins(module: str) -> None:
    command = [sys.executable, "-c", SCRIPT, f"toolpost.{module}", *HEAVY]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()

    assert loaded == []


@pytest.mark.parametrize(("module", "limit"), [("authoring", 60), ("discovery.views", 70), ("gateway", 132)])
def test_an_import_is_small(module: str, limit: int) -> None:
    script = f"import sys, toolpost.{module}; print(*(name for name in sys.modules if name.startswith('toolpost.')))"
    command = [sys.executable, "-c", script]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()

    assert len(loaded) <= limit, loaded
