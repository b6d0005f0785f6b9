"""A call in progress: this tool, these arguments, this caller, until this deadline."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio

from toolpost.authoring.context import Context
from toolpost.base.caller import Caller
from toolpost.base.ids import CallId, JsonObject, ToolName, TraceId
from toolpost.contracts.errors import CallCancelled, ToolTimedOut
from toolpost.middleware.deadline import LightCancelScope
from toolpost.middleware.progress import ProgressShaper
from toolpost.protocol.era import REVISIONS
from toolpost.protocol.rpc import Resumption
from toolpost.providers import ProvidedTool
from toolpost.store.audit_values import AuditDraft
from toolpost.store.call_journal import Slot
from toolpost.upstreams.server_requests import ClientChannel


class Call:
    """One `tools/call`, from admission to its single answer."""

    __slots__ = (
        "_cancel_reason",
        "answered_ns",
        "arguments",
        "at",
        "caller",
        "checked_ns",
        "context",
        "encoded_arguments",
        "ends_at",
        "has_entered",
        "has_own_timer",
        "id",
        "is_counted",
        "is_logged",
        "journal_slot",
        "listed_definition",
        "locked_ns",
        "observed",
        "pending_entry",
        "progress",
        "queued_ns",
        "recorded_ns",
        "requested_name",
        "running_middleware",
        "scope",
        "start_task",
        "started",
        "took_fast_path",
        "tool",
        "via",
        "wants_whole_result",
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
        has_user_steps: bool = False,
        wants_whole_result: bool = False,
    ) -> None:
        """`has_user_steps`: middleware or a guard runs in the call's own task, or the call is nested. Then anyio's scope is
        needed, because their code may swallow a cancellation.
        """
        self.id = call_id
        self.caller = caller
        self.tool = tool
        self.arguments = arguments
        self.progress = progress
        self.wants_whole_result = wants_whole_result
        """Whether a program takes the result, whatever its size: no model reads it."""
        self.via = via
        """The tool that was called, if it runs another (`automatic_eval`)."""
        self.context = Context(
            call_id=call_id,
            trace_id=trace_id,
            caller=caller,
            tool=tool.contract.name,
            reporter=progress,
            meta=meta,
            client_channel=client_channel,
            resumption=resumption,
            pause=self.pause_deadline,
        )
        self.at = time.time()
        self.started = time.monotonic()
        # The deadline counts from admission, so that time spent waiting for a lock is part of it.
        self.ends_at = self.started + tool.contract.timeout_s
        self.scope: LightCancelScope | anyio.CancelScope = (
            LightCancelScope() if tool.is_remote and not has_user_steps else anyio.CancelScope()
        )
        """`Deadline` cancels it."""
        self.has_own_timer = False
        """Whether the scope has its deadline itself, since the clock was stopped once."""
        self.has_entered = False
        """Whether it passed every check, so that the tool may have had an effect."""
        self.running_middleware: str | None = None
        """The middleware that runs now; None before the first and while the tool runs. Named in the time-out error."""
        self.encoded_arguments: bytes | None = None
        """The arguments as they were validated, as JSON with sorted keys; None again when its entry is drafted."""
        self.pending_entry: AuditDraft | None = None
        """The part of its audit entry that is known before the outcome."""
        self.journal_slot: Slot | None = None
        """Where it is in the journal of calls in flight."""
        # When it reached each step, in nanoseconds of the monotonic clock; 0 for one that it has not reached. A step that comes
        # twice, as when a middleware retries, counts the last time.
        # - queued: it asked for the lock of its tool. A `parallel` tool has none, and the fast path takes no call that needs one.
        # - locked: it has the lock, or needs none; its arguments are validated next. 0 on the fast path, which validates first.
        # - checked: it passed every check, and its tool is run next.
        # - answered: the result or the error is there, and the audit entry is written next.
        # - recorded: the audit entry is committed.
        self.queued_ns = self.locked_ns = self.checked_ns = self.answered_ns = self.recorded_ns = 0
        self.observed: Any = None
        """What an observer keeps of it while it runs; None without one."""
        self.requested_name: str | None = None
        """The former name of the tool, if the call used it."""
        self.listed_definition = tool.contract.definition
        """Its definition as its caller knows it: on the path of one server the name is another."""
        self.start_task: Callable[[], None] | None = None
        """Starts the task of a call that the fast path has sent without one; None for any other call."""
        self.took_fast_path = False
        """Whether the fast path has sent its request; a task that runs it later finds its server at work since then."""
        self.is_counted = False
        """Whether it counts as in flight, for its caller and in total."""
        self.is_logged = False
        """Whether the log has the reason of its failure already."""
        self._cancel_reason: str | None = None

    @property
    def trace_id(self) -> TraceId:
        return self.context.trace_id

    @property
    def log_fields(self) -> dict[str, Any]:
        """What identifies it in a log line: the tool, where it runs, and the ids of call, trace, caller and conversation."""
        return {
            "tool": self.tool.contract.name,
            "server" if self.tool.is_remote else "plugin": self.tool.provider,
            "call": self.id,
            "trace": self.trace_id,
            "caller": self.caller.recorded_as,
            "thread": self.caller.thread,
        }

    def cancel(self, reason: str) -> None:
        """Stop the call wherever it is; only the first reason counts."""
        if self.start_task is not None:
            # The server must be sent a cancellation too. The task that waits for its answer does that, so it has to wait first.
            self.start_task()
            asyncio.get_running_loop().call_soon(self.cancel, reason)
        elif self._cancel_reason is None:
            self._cancel_reason = reason
            if self.progress is not None:
                # A tool may report progress while it cleans up; a client that cancelled must not be sent any.
                self.progress.close(deliver=False)
            self.scope.cancel(reason)

    @contextmanager
    def pause_deadline(self, *, at_most_s: float = 0.0) -> Iterator[None]:
        """Stop the clock of the call while it waits for people; a cancellation still ends it.

        With `at_most_s`, `ends_at` is later by so much during the pause: the state that a client of the stateless era carries
        between two rounds is valid as long.

        Not for calls of servers' tools without middleware or guards: the deadline of their scope is fixed.
        """
        scope = self.scope
        assert isinstance(scope, anyio.CancelScope)
        began = time.monotonic()
        self.has_own_timer = True
        scope.deadline = math.inf
        self.ends_at += at_most_s
        try:
            yield
        finally:
            self.ends_at += time.monotonic() - began - at_most_s
            scope.deadline = self.ends_at

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called. A deadline that passed does not count."""
        return self._cancel_reason is not None

    def raise_if_ended(self) -> None:
        """Raise `CallCancelled` or `ToolTimedOut` if the scope was cancelled."""
        if self._cancel_reason is not None:
            raise CallCancelled(f"The call was cancelled: {self._cancel_reason}.")
        if self.scope.cancel_called:
            limit_s = self.tool.contract.timeout_s
            raise ToolTimedOut(
                f"`{self.tool.contract.name}` did not answer within {limit_s:g} s.",
                timeout_ms=round(limit_s * 1000),
                hint="ask for less at once, or raise the tool's time limit"
                if self.running_middleware is None
                else f"the middleware `{self.running_middleware}` did not return in time",
            )

    def detach_progress(self) -> None:
        """Stop sending progress: the round is over, and the next one may attach a new receiver."""
        if self.progress is not None:
            self.progress.redirect(None)

    def report_failure(self, reason: str) -> None:
        """Count a failure against the provider of the tool."""
        if self.tool.on_failure is not None:
            self.tool.on_failure(reason)

    @property
    def waits_for_client(self) -> bool:
        """Whether an elicitation or another server request is with the client, unanswered."""
        return self.context.client_channel is not None and self.context.client_channel.has_open_request

    @property
    def is_plain(self) -> bool:
        """Whether the client wants the answer only: no progress, no logs, no earlier round."""
        client_channel = self.context.client_channel
        hears_nothing = self.progress is None and (client_channel is None or client_channel.log_level is None)
        return hears_nothing and self.context.resumption is None

    @property
    def has_structured_result(self) -> bool:
        """Whether a result of this call may have more than text and media, by its client's revision of MCP."""
        revision = REVISIONS.get(self.context.client.revision)
        return revision is None or revision.has_structured_content

    @property
    def mirrors_arguments(self) -> bool:
        """Whether arguments must be repeated in HTTP headers; a client that calls through another tool cannot know that."""
        return self.via is None and self.tool.contract.mirrors_arguments

    @property
    def duration_ms(self) -> float:
        """Milliseconds since admission."""
        return (time.monotonic() - self.started) * 1000
