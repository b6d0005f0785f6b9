"""What the tests of the command share: a way to run it in a folder of its own, and servers that are ended."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from click.testing import CliRunner

from tests.loaded import forked, loaded_toolpost
from toolpost.cli.main import main

TOOLPOST = str(Path(sys.executable).with_name("toolpost"))
PLUGIN = ("--plugin", "plugin_for_tests:plugin")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Run(Protocol):
    def __call__(self, *arguments: str, stdin: str | None = None, **environment: str) -> Ended: ...


@dataclass
class Server:
    """A `toolpost serve` with its HTTP endpoint."""

    process: subprocess.Popen[str]
    url: str
    facts: dict[str, Any]

    def end(self, number: int = signal.SIGTERM) -> Ended:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return Ended(self.process.returncode, out, err)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a command: plugins of the tests can be found, nothing of the outside leaks in."""
    for name in [name for name in os.environ if name.startswith(("TOOLPOST", "NO_COLOR", "FORCE_COLOR"))]:
        monkeypatch.delenv(name)
    return os.environ | {"PYTHONPATH": str(Path(__file__).parent)}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Run `toolpost` to its end."""

    def run(*arguments: str, stdin: str | None = None, **extra: str) -> Ended:
        ended = subprocess.run(
            loaded_toolpost(*arguments),
            cwd=tmp_path,
            env=environment | extra,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return run


@pytest.fixture
def invoke(tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `toolpost` inside this process: a tenth of the time, where nothing is lost by it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))

    def invoke(*arguments: str, stdin: str | None = None, **extra: str) -> Ended:
        result = CliRunner().invoke(main, arguments, input=stdin, env=environment | extra, prog_name="toolpost")
        return Ended(result.exit_code, result.stdout, result.stderr)

    return invoke


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `toolpost` and go on; it is gone after the test."""
    with ExitStack() as stack:

        def start(*arguments: str) -> subprocess.Popen[str]:
            return stack.enter_context(open_process(arguments, tmp_path, environment))

        yield start


@pytest.fixture
def serve(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., Server]:
    """Start `toolpost serve` on a free port and wait until it serves."""

    def serve(*arguments: str) -> Server:
        process = start("serve", "--listen", "127.0.0.1:0", "--json", *PLUGIN, *arguments)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        facts = json.loads(line)
        return Server(process, facts["url"], facts)

    return serve


@contextmanager
def open_process(
    arguments: tuple[str, ...], folder: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Start `toolpost` in a process of its own, which may be stopped and killed."""
    pipe = subprocess.PIPE
    command = (TOOLPOST, *arguments)
    with forked.start(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
