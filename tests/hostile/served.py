"""A gateway in a process of its own, and raw bytes sent to it: what a polite client would never send."""

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.conftest import open_process
from tests.ways import BEHAVIOURS, ENVELOPE, STATELESS, server_environment


@dataclass(frozen=True)
class Served:
    """A running `toolpost serve`."""

    process: "subprocess.Popen[str]"
    port: int
    folder: Path

    @property
    def log(self) -> str:
        """Everything that it has logged so far."""
        return (self.folder / "log").read_text()

    def send(self, *pieces: bytes, timeout_s: float = 30.0) -> bytes:
        """Send bytes on a connection of their own, and return all that comes back until it is closed."""
        with closing(self.connect(timeout_s)) as peer:
            try:
                for piece in pieces:
                    peer.sendall(piece)
            except ConnectionError:
                pass
            return receive_all(peer)

    def connect(self, timeout_s: float = 30.0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s)

    def ask(self, message: Any, *, path: str = "/mcp", verb: str = "POST", **headers: str) -> tuple[int, Any, str]:
        """Send one plain request; return the status, the body (decoded if it is JSON) and the head."""
        body = b"" if message is None else json.dumps(message).encode()
        raw = request(body, path=path, verb=verb, connection="close", **headers)
        head, _, rest = self.send(raw).partition(b"\r\n\r\n")
        return status_of(head), json.loads(rest) if rest.startswith(b"{") else rest, head.decode("latin-1").lower()


@contextmanager
def open_gateway(
    folder: Path,
    config: str = "",
    *,
    plugins: Sequence[str] = (BEHAVIOURS,),
    **environment: str,
) -> Iterator[Served]:
    """Start a gateway with these plugins, the tools of `tests.plugins.behaviours` if none is named, and this configuration."""
    (folder / "toolpost.toml").write_text(config)
    loaded = [part for plugin in plugins for part in ("--plugin", plugin)]
    serve = ("serve", "--listen", "127.0.0.1:0", "--json", *loaded)
    known = {name: value for name, value in os.environ.items() if not name.startswith("TOOLPOST")}
    with open_process(serve, folder, known | server_environment() | environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # What it logs goes into a file: a pipe that is never read would fill up and stop it.
        with (folder / "log").open("wb") as log, subprocess.Popen(["cat"], stdin=process.stderr, stdout=log):
            try:
                line = process.stdout.readline()
                assert line, (folder / "log").read_text()
                yield Served(process, int(json.loads(line)["url"].split(":")[2].split("/")[0]), folder)
            finally:
                # Also when the test has failed: `Popen` waits for its process.
                process.kill()


def receive_all(peer: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := peer.recv(65_536):
            received += chunk
    except ConnectionError:
        pass
    return received


def status_of(raw: bytes) -> int:
    """Return the status of the first answer, 0 if the connection was closed without one."""
    return int(raw.split(b" ", 2)[1]) if raw.startswith(b"HTTP/1.1 ") else 0


def statuses_of(raw: bytes) -> list[int]:
    """Return the status of every answer on a connection."""
    return [int(code) for code in re.findall(rb"HTTP/1\.[01] (\d{3})", raw)]


def call_body(text: str = "x", name: str = "does__echo", **params: Any) -> bytes:
    """Return a call of a tool in the stateless era."""
    params = {"name": name, "arguments": {"text": text}, "_meta": ENVELOPE} | params
    return json.dumps({"jsonrpc": "2.0", "id": text, "method": "tools/call", "params": params}).encode()


def head(body: bytes | None, *, path: str = "/mcp", verb: str = "POST", **headers: str) -> bytes:
    """Return the head of a request; an empty header is left out."""
    fields = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": STATELESS,
        "mcp-method": "tools/call",
        "mcp-name": "does__echo",
        "content-length": "" if body is None else str(len(body)),
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{verb} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def request(body: bytes, **options: str) -> bytes:
    """Return a whole request."""
    return head(body, **options) + body


FAREWELL = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
"""Ends a connection that is still open; one that was refused is closed before, and does not answer it."""
