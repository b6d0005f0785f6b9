"""Torture of the bus: thousands of tasks while servers, workers and databases are killed, and a count of what came of it.

`python -m tests.parts.bus.torture --tasks 5000 --kills 100 --store sqlite` (or `postgres`, `--servers 2`, `--restarts 20`).
"""

import argparse
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from tests.loaded import forked
from tests.parts.bus.brief import brief_toolpost
from tests.postgres import Postgres, open_postgres
from tests.ways import server_environment
from toolpost.parts.bus import PART
from toolpost.store.part_migrations import open_part_store
from toolpost.store.rows import Table

WORKER = str(Path(__file__).with_name("torture_worker.py"))
TOOLPOST = brief_toolpost(offer_s=1.0, retry_s=0.05, retry_limit_s=0.2)
LEASE_S = 1.0
ARCHIVE = Table(name="bus_archive", key=("id",), columns=("id", "state", "token"))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much of everything."""

    tasks: int = 300
    workers: int = 8
    kills: int = 5
    pauses: int = 4
    worker_kills: int = 4
    restarts: int = 0
    """How often the database is restarted."""
    servers: int = 1
    spare: bool = True
    """Whether a killed server is started again."""
    work_s: float = 0.05
    up_s: float = 0.6
    limit_s: float = 100.0


@dataclass
class Toll:
    """What came of it."""

    tasks: int = 0
    done: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    wrongly_accepted: list[str] = field(default_factory=list)
    """Completions that were accepted under another token than the one that the bus has."""
    strange: list[str] = field(default_factory=list)
    stale_refused: int = 0
    leases: int = 0
    server_kills: int = 0
    worker_kills: int = 0
    pauses: int = 0
    restarts: int = 0
    took_s: float = 0.0


def torture(folder: Path, url: str, plan: Plan, postgres: Postgres | None = None) -> Toll:
    """Do it, in a folder of its own; what is found is judged by the caller."""
    _configure(folder, url)
    toll = Toll(tasks=plan.tasks)
    started = time.monotonic()
    with ExitStack() as stack:
        servers = [stack.enter_context(_server(folder, number)) for number in range(plan.servers)]
        for server in servers:
            server.wait()
        hosts = ",".join(server.host for server in servers)
        planner = stack.enter_context(_process("plan", hosts, folder / "planner.log", "0", str(plan.tasks)))
        crew = [_Worker(folder, hosts, number, plan.work_s) for number in range(plan.workers)]
        for worker in crew:
            stack.callback(worker.end)
            worker.start()
        _Chaos(plan, toll, servers, crew, postgres).reign()
        planner.wait(max(1.0, started + plan.limit_s - time.monotonic()))
        _wait_until_all_are_over(url, plan.tasks, started + plan.limit_s)
        # Whoever was paused is still to say that it has done what somebody else has done meanwhile.
        time.sleep(3 * LEASE_S)
    toll.took_s = time.monotonic() - started
    _count(folder, url, toll)
    return toll


def _configure(folder: Path, url: str) -> None:
    settings = {
        "lease_s": LEASE_S,
        "lease_without_renewal_s": LEASE_S,
        "attempts": 100,
    }
    lines = ["[store]", f"url = {json.dumps(url)}", "[bus]", *(f"{key} = {value}" for key, value in settings.items())]
    (folder / "toolpost.toml").write_text("\n".join([*lines, 'beads = "off"']))


class _Server:
    """A real server on a port that stays the same."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.host = f"127.0.0.1:{free.getsockname()[1]}"
        self.log = (folder / f"server-{number}.log").open("ab")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [*TOOLPOST, "serve", "--only", "bus", "--listen", self.host, "--log-level", "warning"]
        self.process = forked.start(
            command, cwd=self.folder, env=server_environment(), stdout=subprocess.DEVNULL, stderr=self.log
        )

    def wait(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://{self.host}/healthz", timeout=5) as answer:
                    answer.read()
                    return
            except OSError:
                assert self.process is not None
                if self.process.poll() is not None:
                    # A database that is away when a server starts is told, and the server ends: it is started again.
                    self.start()
                assert time.monotonic() < deadline, "the server does not come up"
                time.sleep(0.02)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@contextmanager
def _server(folder: Path, number: int) -> Iterator[_Server]:
    server = _Server(folder, number)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        server.log.close()


@contextmanager
def _process(what: str, hosts: str, log: Path, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-S", "-E", WORKER, what, hosts, str(log), *arguments])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class _Worker:
    """A worker, and those who come after it when it is killed."""

    def __init__(self, folder: Path, hosts: str, number: int, work_s: float) -> None:
        self._arguments = ["work", hosts, str(folder / f"worker-{number}.log"), f"w{number}", str(work_s)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-S", "-E", WORKER, *self._arguments])

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class _Chaos:
    """What goes wrong, in an order that nobody knows."""

    def __init__(
        self, plan: Plan, toll: Toll, servers: list[_Server], crew: list[_Worker], postgres: Postgres | None
    ) -> None:
        self._plan = plan
        self._toll = toll
        self._servers = servers
        self._crew = crew
        self._postgres = postgres
        self._paused: list[tuple[float, _Worker]] = []

    def reign(self) -> None:
        plan = self._plan
        deeds = [self._kill_server] * plan.kills + [self._restart_database] * plan.restarts
        deeds += [self._pause] * plan.pauses + [self._kill_worker] * plan.worker_kills
        random.shuffle(deeds)
        for deed in deeds:
            time.sleep(
                plan.up_s * random.uniform(0.3, 1.0) if deed in (self._kill_server, self._restart_database) else 0.1
            )
            deed()
            self._resume()
        while self._paused:
            time.sleep(0.1)
            self._resume()

    def _kill_server(self) -> None:
        running = [server for server in self._servers if server.process is not None and server.process.poll() is None]
        if not self._plan.spare and len(running) < 2:
            return
        server = random.choice(running)
        server.kill()
        self._toll.server_kills += 1
        if self._plan.spare:
            server.start()
            server.wait()

    def _restart_database(self) -> None:
        assert self._postgres is not None
        self._postgres.restart(random.choice(["fast", "immediate", "kill"]))
        self._toll.restarts += 1

    def _pause(self) -> None:
        awake = [worker for worker in self._crew if all(worker is not paused for _, paused in self._paused)]
        if len(awake) > 2:
            worker = random.choice(awake)
            worker.signal(signal.SIGSTOP)
            self._paused.append((time.monotonic() + LEASE_S * random.uniform(1.2, 2.0), worker))
            self._toll.pauses += 1

    def _resume(self) -> None:
        now = time.monotonic()
        for until, worker in self._paused:
            if until <= now:
                worker.signal(signal.SIGCONT)
        self._paused = [(until, worker) for until, worker in self._paused if until > now]

    def _kill_worker(self) -> None:
        awake = [worker for worker in self._crew if all(worker is not paused for _, paused in self._paused)]
        worker = random.choice(awake)
        worker.end()
        worker.start()
        self._toll.worker_kills += 1


def _said(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    for path in sorted(folder.glob("worker-*.log")):
        for line in path.read_text().splitlines():
            kind, task, token, at = line.split(" ")
            yield kind, task, token, at


def _wait_until_all_are_over(url: str, tasks: int, deadline: float) -> None:
    while anyio.run(_over, url, backend_options={"use_uvloop": True}) < tasks and time.monotonic() < deadline:
        time.sleep(0.5)


def _count(folder: Path, url: str, toll: Toll) -> None:
    """Compare what workers were told with what the store has."""
    archive = anyio.run(_archive, url, backend_options={"use_uvloop": True})
    accepted: dict[str, set[str]] = defaultdict(set)
    kinds: Counter[str] = Counter()
    for kind, task, token, _ in _said(folder):
        kinds[kind] += 1
        if kind == "done":
            accepted[task].add(token)
        elif kind.startswith("wrong:"):
            toll.strange.append(f"{kind[6:]} for {task}")
    names = [f"t-{number}" for number in range(toll.tasks)]
    toll.done = sum(archive.get(name, ("", ""))[0] == "done" for name in names)
    toll.lost = [name for name in names if archive.get(name, ("", ""))[0] != "done"]
    toll.twice = [task for task, tokens in accepted.items() if len(tokens) > 1]
    toll.wrongly_accepted = [
        task for task, tokens in accepted.items() if any(token != archive[task][1] for token in tokens)
    ]
    toll.stale_refused = kinds["stale"]
    toll.leases = kinds["begun"]


async def _over(url: str) -> int:
    async with open_part_store(url, PART.name, PART.migrations) as store:
        return await store.tables.count(ARCHIVE)


async def _archive(url: str) -> dict[str, tuple[str, str]]:
    """Read what the store itself says: state and token of every task that is over."""
    async with open_part_store(url, PART.name, PART.migrations) as store:
        rows = await store.tables.up_to(ARCHIVE, None, None)
    return {task: (state, token) for task, state, token in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    for name, default in (("tasks", 5000), ("kills", 100), ("pauses", 60), ("worker-kills", 60), ("restarts", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--work-s", type=float, default=0.2)
    parser.add_argument("--limit-s", type=float, default=1_800)
    options = vars(parser.parse_args())
    kind = options.pop("store")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-torture-")))
        postgres = stack.enter_context(open_postgres()) if kind == "postgres" else None
        url = postgres.new_url() if postgres is not None else f"sqlite:{folder / 'store.db'}"
        toll = torture(folder, url, Plan(**options), postgres)
    print(json.dumps(vars(toll), indent=1))


if __name__ == "__main__":
    main()
