"""The bus server of a project: which project this is, whether its server runs, and that only one is started.

The project is the repository around the current folder, wherever in it somebody stands; the linked work trees of a repository
are one project with it. Its folder `.toolpost` holds what is known of its server, and the lock under which one is started;
for a folder that is neither a repository nor configured, a folder in the user's data directory does.
"""

import hashlib
import os
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import msgspec

from toolpost.base.own_folder import OWN_FOLDER, make_folder
from toolpost.base.version import __version__
from toolpost.contracts.errors import BadConfiguration, CapabilityMissing, UpstreamUnavailable
from toolpost.git.repository import RepositoryRefused, find_repository
from toolpost.parts.bus.connection import ServerAddress
from toolpost.settings import CONFIG_NAME, Config, load_config
from toolpost.settings.locations import state_folder
from toolpost.upstreams.process.tree import Daemon, end_daemon, is_alive, start_daemon

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

START_S: Final = 30.0
"""How long a server may take to start, on a machine that is busy."""

END_S: Final = 8.0
_CHECK_S: Final = 0.03


class RunningServer(msgspec.Struct, frozen=True, kw_only=True):
    """A bus server, as it has written itself down."""

    pid: int
    bornAt: float  # noqa: N815 (as in the file)
    url: str
    project: str
    version: str = __version__
    host: str = ""
    token: str | None = None

    @property
    def daemon(self) -> Daemon:
        """The process."""
        return Daemon(pid=self.pid, born_at=self.bornAt)

    @property
    def address(self) -> ServerAddress:
        """Where it is."""
        return ServerAddress(url=self.url, token=self.token)


def project_of(folder: Path) -> Path:
    """Return the project that a folder belongs to: its repository, else where a `toolpost.toml` is, else the folder."""
    folder = folder.resolve()
    above = [folder, *folder.parents]
    for place in above:
        if (place / ".git").exists():
            return _main_worktree(place)
    return next((place for place in above if (place / CONFIG_NAME).exists()), folder)


def _main_worktree(place: Path) -> Path:
    """Return the repository that a linked work tree belongs to, if that one names it too; any other is its own."""
    try:
        found = find_repository(place)
    except RepositoryRefused:
        return place
    is_linked = found is not None and found.top == place and found.common_dir != found.git_dir
    return found.common_dir.parent if found is not None and is_linked and found.common_dir.name == ".git" else place


def load_project_config(project: Path) -> Config:
    """Read the configuration of a project."""
    if not project.is_dir():
        raise BadConfiguration(f"There is no folder {project}.", hint="check --project")
    if _may_hold_state(project) and not (project / CONFIG_NAME).exists():
        return Config(project=str(project))
    return load_config(folder=project)


def _may_hold_state(project: Path) -> bool:
    """Say whether the bus may keep its files in `.toolpost` there; in any other folder a client may just have started us."""
    return (project / ".git").exists() or (project / CONFIG_NAME).exists()


class ProjectServer:
    """What is known of a project's server, and how one comes to be."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self._folder = project / OWN_FOLDER if _may_hold_state(project) else state_folder(project)
        self._file = self._folder / "bus-server.json"
        self._log = self._folder / "bus-server.log"

    def find_running(self) -> RunningServer | None:
        """Return the server that runs; None if there is none, or only the word of one that is gone."""
        server = _read(self._file)
        return server if server is not None and is_alive(server.daemon) else None

    def announce(self, server: RunningServer) -> None:
        """Write down a server, for its owner alone to read."""
        make_folder(self._folder, mode=0o700)
        _write(self._file, msgspec.json.encode(server))
        with suppress(OSError):
            _write(_registry_entry(self.project), str(self.project).encode())

    def withdraw(self, server: RunningServer) -> None:
        """Take a server's word back, if it is still its own."""
        if _read(self._file) == server:
            self._file.unlink(missing_ok=True)

    async def find_or_start(self, lost: ServerAddress | None = None) -> ServerAddress:
        """Return where the server is, starting one if none runs; `lost` is where none answered just now."""
        server = self.find_running()
        if server is not None and server.address != lost:
            return server.address
        async with self.open_lock():
            server = await self._find_answering()
            if server is None:
                server = await self._start()
        return server.address

    async def stop(self) -> RunningServer | None:
        """End the server; returns the one that ran."""
        async with self.open_lock():
            server = self.find_running()
            if server is not None:
                await anyio.to_thread.run_sync(lambda: end_daemon(server.daemon, grace_s=END_S))
                self.withdraw(server)
        return server

    @asynccontextmanager
    async def open_lock(self) -> AsyncIterator[None]:
        """Be the only one who starts or ends the server; a holder that dies lets go of it."""
        make_folder(self._folder, mode=0o700)
        number = os.open(self._folder / "bus-server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with anyio.move_on_after(START_S + END_S) as limit:
                while not _try_lock(number):  # noqa: ASYNC110 (another process has it: nothing here would be told)
                    await anyio.sleep(_CHECK_S)
            if limit.cancelled_caught:
                raise UpstreamUnavailable(
                    f"Another process has been starting the bus server of {self.project} for too long.",
                    hint=f"{self._log} may say why",
                )
            yield
        finally:
            os.close(number)

    async def _find_answering(self) -> RunningServer | None:
        """Return the server if it answers; one that ends just now is waited for."""
        until = time.monotonic() + END_S
        while (server := self.find_running()) is not None:
            if await _accepts_connections(server.url):
                return server
            if time.monotonic() > until:
                raise UpstreamUnavailable(
                    f"The bus server of {self.project} (process {server.pid}) is running but does not answer.",
                    hint="stop it with `toolpost bus stop`; the next client starts another",
                )
            await anyio.sleep(_CHECK_S)
        return None

    async def _start(self) -> RunningServer:
        self._file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "toolpost", "bus", "serve", "--for-clients", "--project", str(self.project)]
        # Whoever can read the file may come in; others on this machine may not.
        env = {"TOOLPOST_TOKEN": secrets.token_urlsafe(24), **os.environ}
        daemon = start_daemon(command, cwd=self.project, env=env, log=self._log)
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            server = self.find_running()
            if server is not None:
                return server
            if not is_alive(daemon):
                break
            await anyio.sleep(_CHECK_S)
        raise CapabilityMissing(
            f"The bus server of {self.project} did not start.",
            hint=f"`toolpost bus serve` shows why, and so does {self._log}",
            stderr=_tail(self._log),
        )


def list_running_servers() -> Iterator[RunningServer]:
    """Find the servers of this user's projects that run, and forget the others."""
    for entry in sorted(_registry_folder().glob("*")):
        with suppress(OSError, UnicodeDecodeError):
            server = ProjectServer(Path(entry.read_text())).find_running()
            if server is None:
                entry.unlink(missing_ok=True)
            else:
                yield server


def _registry_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "toolpost" / "bus"


def _registry_entry(project: Path) -> Path:
    return _registry_folder() / hashlib.sha256(str(project).encode("utf-8", "surrogateescape")).hexdigest()[:24]


async def _accepts_connections(url: str) -> bool:
    parts = urlsplit(url)
    with suppress(OSError), anyio.move_on_after(2.0):
        async with await anyio.connect_tcp(parts.hostname or "127.0.0.1", parts.port or 80):
            return True
    return False


def _read(path: Path) -> RunningServer | None:
    try:
        server = msgspec.json.decode(path.read_bytes(), type=RunningServer)
    except (OSError, msgspec.DecodeError):
        return None
    # A folder that is shared between machines: process ids of another one mean nothing here.
    return server if server.host in ("", socket.gethostname()) else None


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    number = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(data)
    fresh.replace(path)


def _try_lock(number: int) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-2_000:].decode(errors="replace")
    except OSError:
        return ""
