"""What a running tool receives: its caller, progress reporting, and running commands."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from toolpost.base.caller import Caller
from toolpost.base.ids import CallId, JsonObject, ToolName, TraceId, new_trace_id
from toolpost.contracts.errors import ToolFailed
from toolpost.protocol.rpc import Resumption
from toolpost.upstreams.process import tree as process_tree
from toolpost.upstreams.server_requests import ClientChannel

ReadProgress = Callable[[], tuple[float | None, float | None, str | None] | None]
"""Parses progress, total and message of a notification; None if it has none."""


class Reporter(Protocol):
    """Receives progress from a tool, from any thread, without making it wait."""

    def report(
        self, progress: float | None, total: float | None, message: str | None, *, stream: str, phase: str
    ) -> None:
        """Record progress; it is rate-limited and shaped before it is sent."""
        ...

    def relay(self, read: ReadProgress) -> None:
        """Record progress of an upstream server; `read` is called only if it is sent on. From the event loop's thread only."""
        ...


class Context:
    """One call, as its tool sees it."""

    __slots__ = ("_reporter", "_trace_id", "call_id", "caller", "client_channel", "meta", "resumption", "tool")

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
        """The request's `_meta`, such as its trace context."""
        self.client_channel = client_channel
        """Answers requests of the server behind the tool (sampling, elicitation); None if the client cannot."""
        self.resumption = resumption
        """Answers to earlier server requests that came with the call."""
        self._reporter = reporter

    @property
    def trace_id(self) -> TraceId:
        """The trace of the call; a call without one gets a new id."""
        if self._trace_id is None:
            self._trace_id = new_trace_id()
        return self._trace_id

    @property
    def wants_progress(self) -> bool:
        """Whether the client asked for progress."""
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
        """Report progress. Call it as often as you like, from any thread: it is rate-limited before it is sent."""
        if self._reporter is not None:
            self._reporter.report(progress, total, message, stream=stream, phase=phase)

    def relay_progress(self, read: ReadProgress) -> None:
        """Pass on progress of an upstream server; most notifications of a flood are never parsed."""
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
        """Run a command; its output becomes progress, and its whole process tree ends with this call.

        `on_line` receives each line and the name of its stream instead of progress. The last `keep_bytes` of each output are
        kept; `is_cut` says whether there was more. With `check`, an exit code other than 0 raises `HANDLER_ERROR` with the end
        of both outputs. From a synchronous tool: `anyio.from_thread.run(ctx.run, ["make"])`.
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
