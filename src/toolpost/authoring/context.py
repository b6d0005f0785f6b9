"""The context of a running tool, resource or prompt: its caller and its client, progress reporting, and running commands.

What a tool asks of its client (`elicit`, `sample`, `roots`) goes through the `ClientChannel` of its call, as the requests of
upstream servers do. In the stateless era the function waits in this process while the client makes its next request.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar, cast, overload
from uuid import uuid4

import anyio
import anyio.from_thread
import msgspec

from toolpost.authoring.client import Accepted, Declined, Root, Sample
from toolpost.authoring.content import Content
from toolpost.authoring.message import Message, as_messages
from toolpost.base.caller import Caller, ClientInfo, parse_client_info
from toolpost.base.ids import CallId, Json, JsonObject, ToolName, TraceId, new_trace_id
from toolpost.contracts.errors import ClientCannotAnswer, ToolFailed, ToolTimedOut
from toolpost.processes import tree as process_tree
from toolpost.protocol.era import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from toolpost.protocol.rpc import Resumption, encode
from toolpost.upstreams.notifications import ELICITATION_COMPLETE, LOG_MESSAGE, Notification
from toolpost.upstreams.server_requests import (
    CAPABILITY_OF,
    ELICITATION,
    ROOTS,
    SAMPLING,
    ClientChannel,
    Sampler,
    check_client_can_answer,
    with_sampling,
)
from toolpost.upstreams.transport import ServerRefused

ANSWER_LIMIT_S: Final = 600.0
"""How long a user may take to answer, unless the tool says otherwise. While they do, the time limit of the call stands still."""

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

T = TypeVar("T")

ReadProgress = Callable[[], tuple[float | None, float | None, str | None] | None]
"""Parses progress, total and message of a notification; None if it has none."""


class Pause(Protocol):
    """Stops the clock of a call until it is left."""

    def __call__(self, *, at_most_s: float = 0.0) -> AbstractContextManager[None]:
        """Return the pause; the call is expected to go on within `at_most_s`."""
        ...


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


@dataclass(frozen=True, kw_only=True)
class PluginServices:
    """Services of a gateway for the functions of one plugin that take a `Context`."""

    plugin: str
    notify: Callable[[Notification], None]
    """Sends a notification to clients outside of a call's own channel."""
    tags: frozenset[str] = frozenset()
    sampler: Sampler | None = None
    """Answers sampling where the client does not."""


class Context:
    """One call, as its tool sees it; also one read of a resource, and one request for a prompt."""

    __slots__ = (
        "_open_waits",
        "_pausing",
        "_reporter",
        "_trace_id",
        "call_id",
        "caller",
        "client_channel",
        "links",
        "meta",
        "pause",
        "resumption",
        "services",
        "tool",
    )

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
        pause: "Pause | None" = None,
    ) -> None:
        """`pause` stops the clock of the call while a user is asked."""
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
        self.services: PluginServices | None = None
        """Set for a function that takes a context, before it runs."""
        self.pause = pause
        """Taken away when the call has ended: it refers to the call, and the call to this context."""
        self._open_waits = 0

    @property
    def trace_id(self) -> TraceId:
        """The trace of the call; a call without one gets a new id."""
        if self._trace_id is None:
            self._trace_id = new_trace_id()
        return self._trace_id

    def link(self, kind: str, name: str, *, begins: bool = False) -> None:
        """Relate this call to something that outlives it, for telemetry: `ctx.link("bus.task", "T-7")`.

        Calls with the same link are found together, whatever process they were in. `begins`: this call makes it.
        """
        # Left unset by `__init__`: few calls have any.
        links: list[tuple[str, str, bool]] = getattr(self, "links", [])
        self.links = [*links, (kind, name, begins)]

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

    # -- the client

    @property
    def client(self) -> ClientInfo:
        """The client program of this call: its name, its revision of MCP, and what it can be asked."""
        version = self.meta.get(PROTOCOL_VERSION)
        if version is None:
            return self.caller.client or ClientInfo()
        return parse_client_info(self.meta.get(CLIENT_INFO), self.meta.get(CLIENT_CAPABILITIES), revision=str(version))

    def log(self, level: LogLevel, data: Json, *, logger: str | None = None) -> None:
        """Send a log message to the client, if it wants messages of this level; from any thread.

        A client of the stateless era wants those that its request asks for. Use Python's `logging` for the operator's log.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            anyio.from_thread.run_sync(self._log, level, data, logger)
        else:
            self._log(level, data, logger)

    def _log(self, level: LogLevel, data: Json, logger: str | None) -> None:
        services, channel = self.services, self.client_channel
        name = logger or (services.plugin if services is not None else self.tool)
        params = encode({"level": level, "logger": name, "data": data})
        if channel is not None and channel.wants_log(level):
            channel.tell(LOG_MESSAGE, params)
        elif services is not None and self.caller.session is not None and PROTOCOL_VERSION not in self.meta:
            # The client has no stream for this call, or wants less: its session has a stream, and knows its level.
            key = f"{self.caller.id}\n{self.caller.session}"
            services.notify(
                Notification(server=services.plugin, key=key, method=LOG_MESSAGE, params=params, tags=services.tags)
            )

    @overload
    async def elicit(
        self, message: str, form: type[T], *, key: str | None = None, timeout_s: float = ANSWER_LIMIT_S
    ) -> Accepted[T] | Declined: ...
    @overload
    async def elicit(
        self, message: str, form: Any, *, key: str | None = None, timeout_s: float = ANSWER_LIMIT_S
    ) -> Accepted[Any] | Declined: ...
    @overload
    async def elicit(
        self, message: str, *, url: str, key: str | None = None, timeout_s: float = ANSWER_LIMIT_S
    ) -> Accepted[None] | Declined: ...
    async def elicit(
        self,
        message: str,
        form: Any = None,
        *,
        url: str | None = None,
        key: str | None = None,
        timeout_s: float = ANSWER_LIMIT_S,
    ) -> Accepted[Any] | Declined:
        """Ask the user to fill in a form, or to go to an address; raise `ClientCannotAnswer` if the client cannot ask.

        `form` is a type (a model, a data class, a `TypedDict`, `bool`, `Literal["a", "b"]`) or a JSON Schema. `key` names the
        request in the stateless era; a client may then send its answer along with the call. Raises `ToolTimedOut` after
        `timeout_s`; until then the time limit of the call stands still. From a synchronous tool:
        `anyio.from_thread.run(ctx.elicit, message, form)`.
        """
        if (form is None) is (url is None):
            raise TypeError("elicit takes either a form or a url")
        if url is not None:
            params: JsonObject = {"mode": "url", "message": message, "url": url}
            elicitation_id = ""
            if PROTOCOL_VERSION not in self.meta:
                elicitation_id = params["elicitationId"] = uuid4().hex
            answer = await self._ask(ELICITATION, params, key, timeout_s)
            action = _read_action(answer)
            return Accepted(data=None, id=elicitation_id) if action == "accept" else Declined(action=action)
        # pydantic is imported only for tools that ask.
        from toolpost.authoring.forms import form_of

        made = form_of(form)
        answer = await self._ask(ELICITATION, {"message": message, "requestedSchema": made.schema}, key, timeout_s)
        action = _read_action(answer)
        if action != "accept":
            return Declined(action=action)
        content = answer.get("content")
        return Accepted(data=made.read(content if isinstance(content, dict) else {}))

    def url_completed(self, elicited: Accepted[None] | Declined) -> None:
        """Tell a client of the handshake era that what its user did at an address is complete."""
        if elicited.id and self.client_channel is not None:
            self.client_channel.tell(ELICITATION_COMPLETE, encode({"elicitationId": elicited.id}))

    async def sample(
        self,
        messages: str | Content | Message | Sequence[str | Content | Message | JsonObject],
        *,
        max_tokens: int = 1_000,
        system: str | None = None,
        temperature: float | None = None,
        stop: Sequence[str] = (),
        models: Sequence[str] = (),
        tools: Sequence[JsonObject] = (),
        tool_choice: JsonObject | None = None,
        key: str | None = None,
        timeout_s: float = ANSWER_LIMIT_S,
    ) -> Sample:
        """Have the client's model answer; raise `ClientCannotAnswer` if it has none, and no models are configured here.

        `models` are names that the client may prefer, the best first. `tools` are definitions as MCP writes them.
        """
        params: JsonObject = {"messages": as_messages(messages), "maxTokens": max_tokens}
        given = {
            "systemPrompt": system,
            "temperature": temperature,
            "stopSequences": list(stop) or None,
            "modelPreferences": {"hints": [{"name": name} for name in models]} if models else None,
            "tools": list(tools) or None,
            "toolChoice": tool_choice,
        }
        params |= {name: value for name, value in given.items() if value is not None}
        answer = await self._ask(SAMPLING, params, key, timeout_s)
        content = answer.get("content")
        blocks = [block for block in (content if isinstance(content, list) else [content]) if isinstance(block, dict)]
        return Sample(
            text="".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text"),
            content=blocks,
            model=str(answer.get("model") or ""),
            stop_reason=str(answer.get("stopReason") or ""),
            role=str(answer.get("role") or "assistant"),
        )

    async def roots(self, *, key: str | None = None, timeout_s: float = 60.0) -> list[Root]:
        """Return the folders that the client works in; raise `ClientCannotAnswer` if it does not tell."""
        answer = await self._ask(ROOTS, {}, key, timeout_s)
        roots = answer.get("roots")
        return [
            Root(uri=str(root.get("uri") or ""), name=str(root.get("name") or ""))
            for root in (roots if isinstance(roots, list) else ())
            if isinstance(root, dict)
        ]

    async def _ask(self, method: str, params: JsonObject, key: str | None, timeout_s: float) -> JsonObject:
        channel = self.client_channel
        if method == SAMPLING and self.services is not None and self.services.sampler is not None:
            channel = with_sampling(channel, self.caller, self.services.sampler)
        encoded = encode(params)
        try:
            check_client_can_answer(method, encoded, channel)
        except ServerRefused as refusal:
            raise _cannot_answer(method, params, refusal) from None
        assert channel is not None
        if key is not None and (early := self._take_early_answer(key)) is not None:
            return early
        try:
            with self._paused(timeout_s), anyio.fail_after(timeout_s):
                answer: Json = msgspec.json.decode(await channel.ask(method, encoded, key=key))
        except TimeoutError:
            raise ToolTimedOut(
                f"The client did not answer {method} within {timeout_s:g} s.", timeout_ms=round(timeout_s * 1000)
            ) from None
        except ServerRefused as refusal:
            raise ToolFailed(f"The client refused {method}: {refusal.message}", method=method) from refusal
        if not isinstance(answer, dict):
            raise ToolFailed(f"The client answered {method} with something that is not an object.", method=method)
        return answer

    def _take_early_answer(self, key: str) -> JsonObject | None:
        """Return what the client answered before it was asked: it may know the keys of a tool's requests, and save a round."""
        if self.resumption is None or self.resumption.state is not None:
            return None
        answer = self.resumption.responses.pop(key, None)
        return answer if isinstance(answer, dict) else None

    @contextmanager
    def _paused(self, at_most_s: float) -> Iterator[None]:
        """Stop the clock of the call; of several requests at once, the first stops it and the last one starts it."""
        is_first = self._open_waits == 0
        if is_first:
            pause = nullcontext() if self.pause is None else self.pause(at_most_s=at_most_s)
            pause.__enter__()
            self._pausing = pause
        self._open_waits += 1
        try:
            yield
        finally:
            self._open_waits -= 1
            if self._open_waits == 0:
                self._pausing.__exit__(None, None, None)


def _read_action(answer: JsonObject) -> Literal["accept", "decline", "cancel"]:
    action = answer.get("action")
    if action not in ("accept", "decline", "cancel"):
        raise ToolFailed("The client answered an elicitation without the user's action.")
    return cast('Literal["accept", "decline", "cancel"]', action)


def _cannot_answer(method: str, params: JsonObject, refusal: ServerRefused) -> ClientCannotAnswer:
    capability = CAPABILITY_OF[method]
    needed: JsonObject = {}
    if params.get("mode") == "url":
        needed = {"url": {}}
    elif "tools" in params:
        needed = {"tools": {}}
    return ClientCannotAnswer(
        f"{refusal.message}.",
        hint=f"use a client that declares the capability `{capability}`",
        required={capability: needed},
        capability=capability,
    )
