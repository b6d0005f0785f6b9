"""What a running tool is handed: who called, a way to report progress, a way to run a command."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from toolpost.base.caller import Caller
from toolpost.base.ids import CallId, JsonObject, ToolName, TraceId, new_trace_id
from toolpost.contracts.errors import ToolFailed
from toolpost.protocol.rpc import Resumption
from toolpost.upstreams.process import tree as process_tree
from toolpost.upstreams.server_requests import ClientChannel

if TYPE_CHECKING:
    from toolpost.upstreams.supervisor import SentRequest

ReadProgress = Callable[[], tuple[float | None, float | None, str | None] | None]
"""Reads progress, total and message of a report; None if there are none in it."""


class Reporter(Protocol):
    """Takes progress from a tool, from any thread, and never makes it wait."""

    def report(
        self, progress: float | None, total: float | None, message: str | None, *, stream: str, phase: str
    ) -> None:
        """Note how far the work has come; what reaches the client is shaped elsewhere."""
        ...

    def relay(self, read: ReadProgress) -> None:
        """Note what another server reports: it is read only if it is sent on. From the loop's own thread."""
        ...


class Context:
    """One call, as its tool sees it."""

    __slots__ = ("_reporter", "_trace_id", "call_id", "caller", "client_channel", "meta", "resumption", "sent", "tool")

    def __init__(
        self,
        *,
        call_id: CallId,
        trace_id: TraceId | None,
        caller: Caller,
        tool: ToolName,
        reporter: Reporter | None,
        meta: JsonObject | None = None,
        client_channel: ClientChannel | None = None,
        resumption: Resumption | None = None,
    ) -> None:
        self.call_id = call_id
        self._trace_id = trace_id
        self.caller = caller
        self.tool = tool
        self.meta = meta or {}
        """The request's own `_meta`, such as its trace context."""
        self.client_channel = client_channel
        """Whom a server behind the tool may ask back; None for nobody."""
        self.resumption = resumption
        """The answers that came with the call, for a server that had asked for them."""
        self.sent: SentRequest | None = None
        """The request to the server behind the tool, if it has gone out already."""
        self._reporter = reporter

    @property
    def trace_id(self) -> TraceId:
        """The trace that the call is part of; one that came without any begins its own."""
        if self._trace_id is None:
            self._trace_id = new_trace_id()
        return self._trace_id

    @property
    def wants_progress(self) -> bool:
        """Whether anybody would see progress."""
        return self._reporter is not None

    def progress(
        self,
        progress: float | None = None,
        total: float | None = None,
        message: str | None = None,
        *,
        stream: str = "info",
        phase: str = "progress",
    ) -> None:
        """Say how far the work has come. Call it as often as you like, from any thread: it is shaped before it is sent."""
        if self._reporter is not None:
            self._reporter.report(progress, total, message, stream=stream, phase=phase)

    def relay_progress(self, read: ReadProgress) -> None:
        """Pass on what another server reports; most of a flood is never read."""
        if self._reporter is not None:
            self._reporter.relay(read)

    async def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002 (as subprocess calls it)
        check: bool = True,
        keep_bytes: int = 1024 * 1024,
        on_line: process_tree.LineListener | None = None,
    ) -> process_tree.CompletedCommand:
        """Run a command; its output is progress, its whole process tree ends with this call.

        `on_line` is told each line instead, with the name of its stream, and makes of it what it likes.
        The last `keep_bytes` of each output are kept; `is_cut` says whether there was more. With `check`, an exit
        code other than 0 is `HANDLER_ERROR` with the end of both outputs. From a synchronous tool:
        `anyio.from_thread.run(ctx.run, ["make"])`.
        """
        finished = await process_tree.run(
            command, cwd=cwd, env=env, input=input, on_line=on_line or self._show_line, tail_bytes=keep_bytes
        )
        if check and finished.returncode != 0:
            raise ToolFailed(
                f"`{command[0]}` ended with exit code {finished.returncode}",
                stdout=finished.stdout,
                stderr=finished.stderr,
                exitCode=finished.returncode,
            )
        return finished

    def _show_line(self, stream: str, line: str) -> None:
        self.progress(message=line, stream=stream, phase="run")
