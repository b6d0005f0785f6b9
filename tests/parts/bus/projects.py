"""A project with a bus of its own: a repository, its configuration, its clients, and an end that leaves nothing behind."""

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from mcp import Client, StdioServerParameters

from tests.loaded import forked, loaded_toolpost
from tests.parts.bus.brief import brief_toolpost
from tests.waiting import wait_until
from tests.ways import ROOT, TOOLPOST, StdioPeer
from toolpost.testing import data_of

STATELESS = "2026-07-28"
ERAS = ["legacy", STATELESS]


@dataclass(kw_only=True)
class Project:
    """A repository in a folder of its own."""

    root: Path
    state: Path
    environment: dict[str, str] = field(default_factory=dict)

    def make(self, store_url: str | None = None, **settings: Any) -> "Project":
        """Make the repository, and write its configuration."""
        self.root.mkdir()
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        store = f"[store]\nurl = {json.dumps(store_url)}\n" if store_url else ""
        (self.root / "toolpost.toml").write_text(store + "[bus]\n" + "\n".join(lines) + "\n")
        return self

    @property
    def env(self) -> dict[str, str]:
        return {
            "PYTHONPATH": str(ROOT),
            "PATH": os.environ["PATH"],
            "HOME": str(self.state),
            "XDG_STATE_HOME": str(self.state),
            **self.environment,
        }

    def run(self, *arguments: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `toolpost bus …` to its end."""
        command = loaded_toolpost("bus", *arguments)
        return subprocess.run(
            command, cwd=cwd or self.root, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )

    @contextmanager
    def serve(self, **times: float) -> Iterator[None]:
        """Run the server that `bus connect` would start, with other times than it has; leaving this kills it."""
        command = [*brief_toolpost(**times), "bus", "serve", "--for-clients", "--project", str(self.root)]
        process = forked.start(
            command,
            cwd=self.root,
            env={**self.env, "TOOLPOST_TOKEN": "brief"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: self.server is not None)
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def json(self, *arguments: str) -> Any:
        ended = self.run(*arguments, "--json")
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    @asynccontextmanager
    async def client(self, *arguments: str, mode: str = STATELESS, cwd: Path | None = None) -> AsyncIterator["Agent"]:
        """Start client mode, as an agent's MCP configuration does."""
        command, *args = loaded_toolpost("bus", "connect", *arguments)
        server = StdioServerParameters(command=command, args=args, env=self.env, cwd=cwd or self.root)
        async with Client(server, mode=mode) as client:
            yield Agent(client)

    @contextmanager
    def peer(self, *arguments: str, cwd: Path | None = None) -> Iterator[StdioPeer]:
        """Start a command that speaks MCP on stdio, to talk to it by hand, stop it and kill it."""
        process = forked.start(
            [TOOLPOST, "bus", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=cwd or self.root,
            env=self.env,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield StdioPeer(process)
        finally:
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()

    @property
    def server(self) -> dict[str, Any] | None:
        """What the server of this project has written down."""
        try:
            found: dict[str, Any] = json.loads((self.root / ".toolpost" / "bus-server.json").read_text())
        except FileNotFoundError:
            return None
        return found

    def kill_server(self) -> int:
        assert self.server is not None
        pid = int(self.server["pid"])
        os.kill(pid, signal.SIGKILL)
        return pid

    def close(self) -> None:
        if not self.root.exists():
            return
        if self.server is not None:
            _end(self.server["pid"])
        # One that was being started when its client ended has not been announced yet.
        for process in psutil.process_iter(["cmdline"]):
            if "--for-clients" in (words := process.info["cmdline"] or []) and str(self.root) in words:
                process.kill()


def _end(pid: int) -> None:
    """Do what `toolpost bus stop` does, without the time that it takes to start."""
    try:
        process = psutil.Process(pid)
        if "--for-clients" in process.cmdline():
            process.terminate()
            process.wait(20)
    except psutil.NoSuchProcess:
        return


@dataclass(frozen=True)
class Agent:
    """What an agent does with the tools of the bus."""

    client: Client

    async def ask(self, tool: str, **arguments: Any) -> Any:
        return data_of(await self.client.call_tool(tool, arguments))

    async def try_(self, tool: str, **arguments: Any) -> Any:
        return await self.client.call_tool(tool, arguments)

    async def work(self, name: str, **options: Any) -> dict[str, Any] | None:
        """Take a task and begin it."""
        task: dict[str, Any] | None = (await self.ask("poll_task", name=name, **options))["task"]
        if task is not None:
            await self.ask("ack_task", name=name, bead_id=task["bead_id"])
        return task
