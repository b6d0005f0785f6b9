"""The bus server of a project: which project a folder belongs to, whether its server runs, and how one is started once.

The project is the repository around a folder; linked work trees belong to the project of their repository. A running server
writes its address into `.toolpost/bus-server.json` of the project, which only its owner can read; servers are started and stopped
under the lock file beside it. For a folder that is neither a repository nor configured, both are in the user's state directory.
"""

import hashlib
import os
import secrets
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import msgspec

from toolpost import CapabilityMissing, NotFound, UpstreamUnavailable, __version__
from toolpost.base import STATE_FOLDER, make_folder
from toolpost.contracts import BadConfiguration
from toolpost.parts.bus import PART
from toolpost.parts.bus.connection import ServerAddress
from toolpost.parts.bus.part import make_bus
from toolpost.parts.bus.service import Bus
from toolpost.processes import Daemon
from toolpost.settings import CONFIG_NAME, Config, load_config, state_folder
from toolpost.store import open_part_store, shown_url, store_exists

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

START_S: Final = 30.0
"""How long a server may take to start, on a busy machine."""

STOP_S: Final = 8.0
_CHECK_S: Final = 0.03
_LINE_LIMIT: Final = 8_192


class RunningServer(msgspec.Struct, frozen=True, kw_only=True):
    """The announcement of a bus server, as in its file."""

    pid: int
    bornAt: float  # noqa: N815 (as in the file)
    url: str
    project: str
    version: str = __version__
    host: str = ""
    token: str | None = None

    @property
    def daemon(self) -> Daemon:
        return Daemon(pid=self.pid, born_at=self.bornAt)

    @property
    def address(self) -> ServerAddress:
        return ServerAddress(url=self.url, token=self.token)


def project_of(folder: Path) -> Path:
    """Return the project of a folder: its repository, else the nearest folder with a `toolpost.toml`, else the folder."""
    folder = folder.resolve()
    candidates = [folder, *folder.parents]
    for candidate in candidates:
        if (candidate / ".git").exists():
            return _main_worktree(candidate)
    return next((candidate for candidate in candidates if (candidate / CONFIG_NAME).exists()), folder)


def _main_worktree(top: Path) -> Path:
    """Return the repository that a linked work tree belongs to; the work tree itself if the repository does not list it.

    A `.git` file could name any repository on the machine: it counts only if that one names this work tree in return, and if all
    of it belongs to this user.
    """
    pointer = top / ".git"
    try:
        if not stat.S_ISREG(pointer.lstat().st_mode):
            return top
        git_dir = (top / _read_line(pointer).removeprefix("gitdir:").strip()).resolve()
        common_dir = git_dir.parent.parent
        is_listed = (git_dir / _read_line(git_dir / "gitdir")).resolve() == pointer.resolve()
        is_shared = git_dir.parent.name == "worktrees" and (
            (git_dir / _read_line(git_dir / "commondir")).resolve() == common_dir
        )
        is_own = all(_is_own(part) for part in (pointer, top, git_dir, common_dir))
    except (OSError, ValueError):
        return top
    return common_dir.parent if is_listed and is_shared and is_own and common_dir.name == ".git" else top


def _read_line(path: Path) -> str:
    """Read a file of git that has one line; raises `ValueError` for anything else."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    with open(descriptor, encoding="utf-8") as file:  # noqa: PTH123 (a descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} is no file")
        text = file.read(_LINE_LIMIT).strip()
    if "\0" in text or "\n" in text:
        raise ValueError(f"{path} has more than one line")
    return text


def _is_own(path: Path) -> bool:
    """Whether a path belongs to this user; with `sudo`, also to the user who ran it."""
    if sys.platform == "win32":
        return True
    user = os.geteuid()
    sudo_user = os.environ.get("SUDO_UID", "") if user == 0 else ""
    return path.lstat().st_uid in {user, int(sudo_user) if sudo_user.isdecimal() else user}


def load_project_config(project: Path) -> Config:
    """Load the configuration of a project; raises `BadConfiguration` if there is no such folder."""
    if not project.is_dir():
        raise BadConfiguration(f"There is no folder {project}.", hint="check --project")
    if _may_hold_state(project) and not (project / CONFIG_NAME).exists():
        return Config(project=str(project))
    return load_config(folder=project)


def _may_hold_state(project: Path) -> bool:
    """Whether files may be created in `.toolpost` of a folder: a client may have started us in any other by chance."""
    return (project / ".git").exists() or (project / CONFIG_NAME).exists()


@asynccontextmanager
async def open_bus(project: Path, *, make: bool = False) -> AsyncIterator[Bus]:
    """Open the bus of a project in this process; it shares the store with the servers, which are woken by it.

    With `make`, its store is created if it does not exist, else `NotFound` is raised.
    """
    config = load_project_config(project)
    if not make and not await store_exists(config.store_url):
        raise NotFound(
            f"There is no store at {shown_url(config.store_url)} yet, and so no task.",
            hint="`toolpost bus submit TASK` creates both; --project names another project",
        )
    pool = config.store.pool
    async with open_part_store(config.store_url, PART.name, PART.migrations, pool=pool) as store:
        yield make_bus(config, store)


class ProjectServer:
    """Finds, starts and stops the bus server of a project."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self._folder = project / STATE_FOLDER if _may_hold_state(project) else state_folder(project)
        self._file = self._folder / "bus-server.json"
        self._log = self._folder / "bus-server.log"

    def find_running(self) -> RunningServer | None:
        """Return the announced server; None if there is none, or its process has ended."""
        server = _read(self._file)
        return server if server is not None and server.daemon.is_alive else None

    def announce(self, server: RunningServer) -> None:
        """Write the file of a server, and enter its project into the registry of `toolpost bus status --all`."""
        make_folder(self._folder, mode=0o700)
        _write(self._file, msgspec.json.encode(server))
        with suppress(OSError):
            entry = hashlib.sha256(str(self.project).encode("utf-8", "surrogateescape")).hexdigest()[:24]
            _write(_registry_folder() / entry, str(self.project).encode())

    def withdraw(self, server: RunningServer) -> None:
        """Delete the file of a server, unless another server has replaced it."""
        if _read(self._file) == server:
            self._file.unlink(missing_ok=True)

    async def find_or_start(self, lost: ServerAddress | None = None) -> ServerAddress:
        """Return the address of the server, started if none runs; `lost` is an address that has stopped answering."""
        server = self.find_running()
        if server is not None and server.address != lost:
            return server.address
        async with self.open_lock():
            server = await self._find_answering()
            if server is None:
                server = await self._start()
        return server.address

    async def stop(self) -> RunningServer | None:
        """Stop the server; return it, None if none ran."""
        async with self.open_lock():
            server = self.find_running()
            if server is not None:
                await anyio.to_thread.run_sync(lambda: server.daemon.end(grace_s=STOP_S))
                self.withdraw(server)
        return server

    @asynccontextmanager
    async def open_lock(self) -> AsyncIterator[None]:
        """Hold the lock under which servers are started and stopped; the system releases it if this process dies."""
        make_folder(self._folder, mode=0o700)
        fd = os.open(self._folder / "bus-server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with anyio.move_on_after(START_S + STOP_S) as limit:
                while not _try_lock(fd):  # noqa: ASYNC110 (another process has it, and sends no event)
                    await anyio.sleep(_CHECK_S)
            if limit.cancelled_caught:
                raise UpstreamUnavailable(
                    f"Another process has been starting the bus server of {self.project} for too long.",
                    hint=f"see {self._log} for the reason",
                )
            yield
        finally:
            os.close(fd)

    async def _find_answering(self) -> RunningServer | None:
        """Return the running server once it answers, None if none runs or it has stopped; raises if it hangs for `STOP_S`."""
        until = time.monotonic() + STOP_S
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
        # A random token: only processes that can read the server's file may connect, not every user of this machine.
        env = {"TOOLPOST_TOKEN": secrets.token_urlsafe(24), **os.environ}
        daemon = Daemon.start(command, cwd=self.project, env=env, log=self._log)
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            server = self.find_running()
            if server is not None:
                return server
            if not daemon.is_alive:
                break
            await anyio.sleep(_CHECK_S)
        raise CapabilityMissing(
            f"The bus server of {self.project} did not start.",
            hint=f"see {self._log}, or run `toolpost bus serve` to see the reason",
            stderr=_tail(self._log),
        )


def list_running_servers() -> Iterator[RunningServer]:
    """Yield the running servers of this user's projects, and delete registry entries of the others."""
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
    # The folder may be shared between machines, and a process id is valid on one of them only.
    return server if server.host in ("", socket.gethostname()) else None


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    temporary.replace(path)


def _try_lock(fd: int) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-2_000:].decode(errors="replace")
    except OSError:
        return ""
