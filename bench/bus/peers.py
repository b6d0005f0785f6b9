"""Celery on Redis and procrastinate on PostgreSQL, each as its documentation has it."""

import asyncio
import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.http_calls import free_port
from bench.load import BenchError
from bench.processes import ROOT, surroundings

Run = Callable[[float], float]
WORKERS = 8
READY_S = 60.0


def _needed(*modules: str) -> None:
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise BenchError(f"{error.name} is not installed (scripts/setup bench)") from error


@contextmanager
def celery(folder: Path) -> Iterator[Run]:
    """Start Redis and a worker with eight threads."""
    _needed("celery", "redis")
    binary = shutil.which("redis-server")
    if binary is None:
        raise BenchError("redis-server is missing (Debian: apt install redis-server)")
    port = free_port()
    redis = subprocess.Popen(
        [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)], stdout=subprocess.DEVNULL
    )
    url = f"redis://127.0.0.1:{port}/0"
    settings = {**surroundings(), "BENCH_REDIS": url}
    arguments = ["worker", "--pool", "threads", "-c", str(WORKERS), "--loglevel", "ERROR"]
    arguments += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "bench.bus.celery_app", *arguments],
        cwd=ROOT,
        env=settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _driven(settings, 0.2)  # until everybody is there
        yield lambda seconds: _driven(settings, seconds)
    finally:
        for process in (worker, redis):
            process.terminate()
            process.wait(20)


def _driven(settings: dict[str, str], seconds: float) -> float:
    ran = subprocess.run(
        [sys.executable, "-m", "bench.bus.celery_app", str(seconds)],
        cwd=ROOT,
        env=settings,
        capture_output=True,
        text=True,
        timeout=READY_S + seconds,
        check=False,
    )
    if ran.returncode != 0:
        raise BenchError(f"Celery failed:\n{ran.stderr[-2_000:]}")
    return float(json.loads(ran.stdout))


@contextmanager
def procrastinate(uri: str) -> Iterator[Run]:
    """Make its tables in the database that ours is in."""
    _needed("procrastinate", "psycopg")
    peer = importlib.import_module("bench.bus.procrastinate_app")
    asyncio.run(peer.set_up(uri))
    yield lambda seconds: float(asyncio.run(peer.per_second(uri, seconds, workers=WORKERS)))
