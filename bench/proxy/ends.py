"""What a load is sent to: a port or two pipes, with a proxy or the upstream itself at the other end."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from bench.http_calls import free_port
from bench.load import BenchError, Load, http_load
from bench.processes import Measured, open_process
from bench.proxy.candidates import DIRECT, Proxy, Target, Transport, upstream_command
from bench.stdio_calls import Piped
from bench.wire import Era, http_template, open_session, wait_until_served

MANY = 32


class End(Protocol):
    """Somebody who answers."""

    @property
    def name(self) -> str: ...

    @property
    def server(self) -> Measured: ...

    def load(self, *, in_flight: int, seconds: float) -> Load:
        """Send calls for so long."""
        ...


@dataclass(frozen=True, kw_only=True)
class HttpEnd:
    """Somebody at a port; in the handshake era with a session per connection."""

    name: str
    tool: str
    era: Era
    server: Measured
    port: int
    sessions: tuple[str, ...] = ()

    def load(self, *, in_flight: int, seconds: float) -> Load:
        sessions = self.sessions[:in_flight] or (None,)
        requests = [http_template(self.port, self.tool, self.era, session) for session in sessions]
        try:
            return http_load(self.port, requests, in_flight=in_flight, seconds=seconds)
        except BenchError as error:
            what = f"{self.name}, HTTP {self.era}, {in_flight} in flight"
            raise BenchError(f"{what}: {error}\n{self.server.said()}") from error


def open_upstream(stack: ExitStack, transport: Transport, *, tools: int = 1) -> Target:
    """Start an upstream at a port, or return how to start one on stdio."""
    if transport == "stdio":
        return Target(command=upstream_command("stdio", tools))
    port = free_port()
    server = stack.enter_context(open_process(upstream_command("http", port, tools)))
    wait_until_served(port, server, "modern")
    return Target(port=port, server=server)


def open_direct(stack: ExitStack, target: Target, era: Era) -> End:
    """Reach the upstream itself, over its own transport."""
    if target.server is not None and target.port is not None:
        return HttpEnd(name=DIRECT, tool="echo", era=era, server=target.server, port=target.port)
    return _open_pipes(stack, DIRECT, "echo", era, target.command)


def open_proxy(stack: ExitStack, proxy: Proxy, front: Transport, target: Target, era: Era) -> End:
    """Start a proxy before the upstream and reach it over this transport."""
    files = proxy.files(target)
    if front == "stdio":
        return _open_pipes(stack, proxy.name, proxy.tool, era, proxy.stdio_command(target), files)
    port = free_port()
    server = stack.enter_context(open_process(proxy.http_command(port, target), files=files))
    wait_until_served(port, server, era)
    sessions = tuple(open_session(port) for _ in range(MANY)) if era == "handshake" else ()
    return HttpEnd(name=proxy.name, tool=proxy.tool, era=era, server=server, port=port, sessions=sessions)


def _open_pipes(
    stack: ExitStack,
    name: str,
    tool: str,
    era: Era,
    command: tuple[str, ...] | list[str],
    files: Mapping[str, str] | None = None,
) -> End:
    server = stack.enter_context(open_process(command, piped=True, files=files))
    end = Piped(name=name, tool=tool, era=era, server=server)
    end.first_listing()
    return end
