"""A call on its way: this tool, these arguments, until this deadline."""

import asyncio
import time
from collections.abc import Callable

import anyio

from toolpost.authoring.context import Context
from toolpost.base.caller import Caller
from toolpost.base.ids import CallId, JsonObject, ToolName, TraceId
from toolpost.contracts.errors import CallCancelled, ToolpostError, ToolTimedOut
from toolpost.middleware.deadline import Limit
from toolpost.middleware.progress import ProgressShaper
from toolpost.protocol.rpc import Resumption
from toolpost.providers import ProvidedTool
from toolpost.store import AuditEntry
from toolpost.upstreams.server_requests import ClientChannel


class Call:
    """One caller's wish, from admission to its one terminal answer."""

    __slots__ = (
        "_cancel_reason",
        "arguments",
        "asked_as",
        "at",
        "caller",
        "carry",
        "context",
        "draft",
        "ends_at",
        "has_entered",
        "held_by",
        "id",
        "is_counted",
        "is_logged",
        "progress",
        "scope",
        "started",
        "tool",
        "unrecorded",
        "via",
    )

    def __init__(
        self,
        *,
        call_id: CallId,
        trace_id: TraceId | None,
        caller: Caller,
        tool: ProvidedTool,
        arguments: JsonObject,
        progress: ProgressShaper | None = None,
        meta: JsonObject | None = None,
        client_channel: ClientChannel | None = None,
        resumption: Resumption | None = None,
        via: ToolName | None = None,
        runs_code: bool = False,
    ) -> None:
        """Take also whether code of users runs in the call's own task: it may swallow a cancellation."""
        self.id = call_id
        self.caller = caller
        self.tool = tool
        self.arguments = arguments
        self.progress = progress
        self.via = via
        """The tool that the wish was put to, where that tool runs others."""
        self.context = Context(
            call_id=call_id,
            trace_id=trace_id,
            caller=caller,
            tool=tool.contract.name,
            reporter=progress,
            meta=meta,
            client_channel=client_channel,
            resumption=resumption,
        )
        self.at = time.time()
        self.started = time.monotonic()
        # The deadline counts from admission, so that time spent waiting for a lock is part of it.
        self.ends_at = self.started + tool.contract.timeout_s
        self.scope: Limit | anyio.CancelScope = (
            Limit(self.ends_at) if tool.is_remote and not runs_code else anyio.CancelScope(deadline=self.ends_at)
        )
        self.has_entered = False
        self.held_by: str | None = None
        """The middleware that the call is in; None while it is on its way to the tool or in it."""
        self.draft: Callable[..., AuditEntry] | None = None
        """Makes its audit entry of what became of it, once the rest of the entry is known."""
        self.asked_as: str | None = None
        """The former name of the tool, if that is what was asked for."""
        self.carry: Callable[[], None] | None = None
        """Starts the task of a call that has none yet, since its server was asked ahead of it."""
        self.is_counted = False
        """Whether it has its place among the calls in flight, of its caller and of all."""
        self.is_logged = False
        """Whether the log says why it failed."""
        self.unrecorded: BaseException | None = None
        """Why it could not be put on the record after its server had answered it ahead of a task."""
        self._cancel_reason: str | None = None

    @property
    def trace_id(self) -> TraceId:
        """The trace that the call is part of."""
        return self.context.trace_id

    def cancel(self, reason: str) -> None:
        """Stop the call wherever it is; a second reason changes nothing."""
        if self.carry is not None:
            # Its server has to hear of it too: the task that waits for the answer sees to that, once it waits.
            self.carry()
            asyncio.get_running_loop().call_soon(self.cancel, reason)
        elif self._cancel_reason is None:
            self._cancel_reason = reason
            if self.progress is not None:
                # A tool may take its time to clean up, and say so; the client wants to hear no more of it.
                self.progress.close(deliver=False)
            self.scope.cancel()

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody asked for the call to stop. A deadline that passed is not that."""
        return self._cancel_reason is not None

    def raise_if_ended(self) -> None:
        """Turn a cancelled scope into the error that says why."""
        if self._cancel_reason is not None:
            raise CallCancelled(f"The call was cancelled: {self._cancel_reason}.")
        if self.scope.cancel_called:
            raise self._timed_out()

    def is_left(self) -> None:
        """Take note that nobody hears of the progress any more, until somebody says otherwise."""
        if self.progress is not None:
            self.progress.redirect(None)

    def _timed_out(self) -> ToolpostError:
        limit_s = self.tool.contract.timeout_s
        return ToolTimedOut(
            f"`{self.tool.contract.name}` did not answer within {limit_s:g} s.",
            timeout_ms=round(limit_s * 1000),
            hint="ask for less at once, or raise the tool's time limit"
            if self.held_by is None
            else f"the middleware `{self.held_by}` did not return in time",
        )

    def blame(self, reason: str) -> None:
        """Tell the source what it is to blame for."""
        if self.tool.on_failure is not None:
            self.tool.on_failure(reason)

    @property
    def waits_for_client(self) -> bool:
        """Whether the source has put a question to the client, which has not answered yet."""
        return self.context.client_channel is not None and self.context.client_channel.has_open_request

    @property
    def is_plain(self) -> bool:
        """Whether its caller wants nothing of it but the answer."""
        client_channel = self.context.client_channel
        hears_nothing = self.progress is None and (client_channel is None or client_channel.log_level is None)
        return hears_nothing and self.context.resumption is None

    @property
    def mirrors_arguments(self) -> bool:
        """Whether arguments must be in HTTP headers too; whoever calls through another tool cannot know of that."""
        return self.via is None and self.tool.contract.mirrors_arguments

    @property
    def duration_ms(self) -> float:
        """How long the call has taken so far."""
        return (time.monotonic() - self.started) * 1000
