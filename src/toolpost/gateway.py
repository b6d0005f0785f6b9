"""The gateway: find the tool, let the call pass, give one answer. Every endpoint comes through here."""

import logging
from collections.abc import Callable, Mapping, Sequence

import anyio
import msgspec

from toolpost.contracts.caller import Caller
from toolpost.contracts.envelope import ResultStyle, failure_payload, success_payload
from toolpost.contracts.errors import GatewayError, InvalidResult, ToolpostError, UpstreamRefused
from toolpost.contracts.events import event
from toolpost.contracts.ids import Json, JsonObject, TraceId, new_call_id, new_trace_id
from toolpost.discovery import EVERYTHING, Catalogue, View
from toolpost.pipeline import Call, Next, ProgressNote, ProgressShaper
from toolpost.protocol.rpc import Resumption
from toolpost.upstreams.asking import Respondent

_log = logging.getLogger("toolpost.gateway")

_CLOSING = "the server is shutting down"


class Answer(msgspec.Struct, kw_only=True, frozen=True):
    """The one terminal answer of a call, as JSON that any endpoint can send."""

    call: Call
    payload: bytes
    is_error: bool
    code: str | None = None
    content: Sequence[Json] = ()
    passed: Mapping[str, msgspec.Raw] | None = None
    """A server's own result, field by field, to be sent on as it came."""
    refusal: UpstreamRefused | None = None
    """A server's own protocol error, to be sent on as one."""

    @property
    def style(self) -> ResultStyle:
        """How the payload is shaped."""
        return self.call.tool.contract.terms.style


class Gateway:
    """What is behind every endpoint."""

    def __init__(self, catalogue: Catalogue, pipeline: Next) -> None:
        self.catalogue = catalogue
        self._pipeline = pipeline
        self._calls: set[Call] = set()
        self._former_names: set[str] = set()
        self._is_closing = False
        self._idle = anyio.Event()

    def admit(
        self,
        *,
        caller: Caller,
        name: str,
        arguments: JsonObject,
        trace_id: TraceId | None = None,
        on_progress: Callable[[ProgressNote], None] | None = None,
        meta: JsonObject | None = None,
        view: View = EVERYTHING,
        respondent: Respondent | None = None,
        resumption: Resumption | None = None,
    ) -> Call:
        """Find the tool and make a call of the wish; a name that is unknown, or not in view, gets no further than this."""
        tool = self.catalogue.seen_through(view).find(name)
        call_id = new_call_id()
        progress = None
        if on_progress is not None:
            progress = ProgressShaper(on_progress, call_id=call_id, tool=tool.contract.name)
        call = Call(
            call_id=call_id,
            trace_id=trace_id or new_trace_id(),
            caller=caller,
            tool=tool,
            arguments=arguments,
            progress=progress,
            meta=meta,
            respondent=respondent,
            resumption=resumption,
        )
        if name != tool.contract.name:
            self._note_former_name(call, name)
        if self._is_closing:
            call.cancel(_CLOSING)
        return call

    async def call(self, call: Call) -> Answer:
        """Let the call pass and return its one answer, whatever happens to it."""
        self._calls.add(call)
        try:
            outcome = await self._pipeline(call)
        except ToolpostError as error:
            return _failure(call, error)
        except Exception as error:  # noqa: BLE001 (a bug of ours)
            return _failure(call, GatewayError(cause=error))
        else:
            return Answer(
                call=call,
                payload=success_payload(outcome.encoded, call.tool.contract.terms.style),
                is_error=outcome.is_error,
                content=outcome.content,
                passed=outcome.passed,
            )
        finally:
            self._ended(call)

    @property
    def in_flight(self) -> int:
        """How many calls have not been answered yet."""
        return len(self._calls)

    async def drain(self, grace_s: float) -> None:
        """Admit nothing more, give what is in flight this long, then cancel it."""
        self._is_closing = True
        if self._calls:
            with anyio.move_on_after(grace_s):
                await self._idle.wait()
        for call in tuple(self._calls):
            call.cancel(_CLOSING)

    def _note_former_name(self, call: Call, name: str) -> None:
        """Warn of a name that answers only for a while: in the answer each time, in the log once."""
        call.asked_as = name
        if name not in self._former_names:
            self._former_names.add(name)
            use = call.tool.contract.name
            event(_log, logging.WARNING, "deprecated tool name", tool=name, use=use, caller=call.caller.id)

    def _ended(self, call: Call) -> None:
        self._calls.discard(call)
        if call.progress is not None:
            call.progress.close(deliver=not call.is_cancelled)
        if self._is_closing and not self._calls:
            self._idle.set()


def _failure(call: Call, error: ToolpostError) -> Answer:
    if isinstance(error, GatewayError):
        error = _internal(call, error)
    payload = failure_payload(error.as_object(), call.tool.contract.terms.style)
    return Answer(
        call=call,
        payload=payload,
        is_error=True,
        code=error.code.value,
        content=error.content if isinstance(error, InvalidResult) else (),
        refusal=error if isinstance(error, UpstreamRefused) else None,
    )


def _internal(call: Call, error: GatewayError) -> GatewayError:
    """Log a bug of ours in full; the caller is shown where to look, and nothing of it."""
    event(
        _log,
        logging.ERROR,
        "internal error",
        tool=call.tool.contract.name,
        call=call.id,
        trace=call.trace_id,
        reason=error.message,
        exception=error.details.get("cause", error),
    )
    return GatewayError(hint=f"the server's log has more under call id {call.id}", callId=call.id)
