"""Asks candidates in the order of their scores until one answers, within a deadline.

    fit the context window, best score first  →  circuit lets it pass  →  one attempt of at most `attempt_s`  →  answer
                                                        ↓ no                       ↓ failed
                                                     the next one              the next one

A candidate that asked to be left alone for a moment (429 with Retry-After) is tried once more at the end, if that moment ends
before the deadline. An attempt that may have had a side effect is the last one: only an agent can have any, a model only writes.

What counts against a candidate is decided here: neither a request that is at fault, nor a caller's short deadline, nor a
cancellation opens a circuit that others need.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio

from toolpost import Caller, CapabilityMissing, NotFound, ToolFailed, ToolpostError, UpstreamUnavailable
from toolpost.base import JsonObject, event, nearest_name, steady_s
from toolpost.contracts import InvalidRequest, ToolTimedOut
from toolpost.discovery import estimate_tokens
from toolpost.parts.models.breaker import FAILURES, PAUSE_S, Breaker, CircuitPass
from toolpost.parts.models.endpoint import Completion, EndpointFailed, ModelPrompt, TextListener
from toolpost.parts.models.score import Score, Scorer, ScoreRequest, ScoreWeights, estimate_cost
from toolpost.parts.models.stats import ModelAttempt, Stats

_log = logging.getLogger("toolpost.models")

NO_MODELS_HINT: Final = "add [models.NAME] with a `url` to toolpost.toml, and start again"

REASONS_SHOWN: Final = 3
"""How many failed models the message of an error names; the details have all of them."""

CLOCK_MARGIN_S: Final = 0.01

TAIL_LIMIT: Final = 1_000
"""How many characters of an answer are shown while it is written; a progress message has no more."""


class Model(Protocol):
    """Something that answers prompts: an endpoint, or an agent."""

    @property
    def acts(self) -> bool:
        """Whether an attempt can have side effects. It is then the last one if it begins and fails, so it gets all the time."""
        ...

    async def answer(self, prompt: ModelPrompt, caller: Caller, on_text: TextListener | None) -> Completion:
        """Return the answer, or raise `EndpointFailed` or `MayHaveActed`."""
        ...


class MayHaveActed(Exception):
    """An attempt failed after it may have had a side effect: nothing else may be tried."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class FailedAttempt:
    """A candidate that gave no answer, and why."""

    model: str
    reason: str

    def as_object(self) -> JsonObject:
        return {"model": self.model, "reason": self.reason}


@dataclass(frozen=True, kw_only=True)
class Routed:
    """An answer, the candidate that gave it, and those that were tried before."""

    model: str
    completion: Completion
    input_tokens: int
    output_tokens: int
    cost: float
    seconds: float
    failed: Sequence[FailedAttempt] = ()


@dataclass(kw_only=True)
class _AttemptProgress:
    """One call, between its attempts."""

    ends_at: float
    failed: list[FailedAttempt] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """Candidates that asked to be left alone during this call."""
    is_late: bool = False


class Router:
    """Scores and asks the configured models."""

    def __init__(
        self,
        models: Mapping[str, Model],
        scorer: Scorer,
        stats: Stats,
        *,
        attempt_s: float = 30.0,
        failures: int = FAILURES,
        pause_s: float = PAUSE_S,
        clock: Callable[[], float] = steady_s,
    ) -> None:
        self.models = models
        self.scorer = scorer
        self.stats = stats
        self._attempt_s = attempt_s
        self._clock = clock
        self.breakers = {name: Breaker(clock, limit=failures, pause_s=pause_s) for name in models}

    def score(self, request: ScoreRequest, rules: ScoreWeights | None = None) -> list[Score]:
        """Return the score of every candidate, best first. Raises `NotFound` for a preference for an unknown one."""
        for name in request.preferences:
            self.check_known(name)
        return self.scorer.score(request, {name: self.stats.experience(name) for name in self.models}, rules)

    def winner(self, scores: Sequence[Score]) -> str | None:
        """Return the candidate that a call would ask first; None if there is none."""
        return next((one.name for one in scores if one.fits and self.breakers[one.name].is_available), None)

    def check_known(self, name: str) -> None:
        """Raise `NotFound` unless a candidate has this name."""
        self._check(name, self.models)

    def reset_circuits(self, name: str | None = None) -> None:
        """Close the circuit of a candidate, or of a server of a group; of all without a name. Raises `NotFound`."""
        if name is not None:
            self._check(name, self.breakers)
        for one, breaker in self.breakers.items():
            if name in (None, one):
                breaker.reset()

    def _check(self, name: str, names: Collection[str]) -> None:
        if name in names:
            return
        near = nearest_name(name[:128], names)
        known = f"known: {', '.join(sorted(names))}" if names else NO_MODELS_HINT
        raise NotFound(f"Unknown model `{name[:128]}`.", hint=f"did you mean `{near}`?" if near else known)

    async def call(
        self,
        prompt: ModelPrompt,
        request: ScoreRequest,
        *,
        caller: Caller,
        timeout_s: float,
        only: Sequence[str] = (),
        on_text: TextListener | None = None,
        rules: ScoreWeights | None = None,
    ) -> Routed:
        """Ask candidates until one answers; `only` names those that may be asked, `rules` replace the configured ones.

        Raises `CapabilityMissing` without models, `InvalidRequest` if the prompt fits into no context window, `ToolTimedOut`
        when the time is over, `ToolFailed` after a possible side effect, and `UpstreamUnavailable` if none answered.
        """
        progress = _AttemptProgress(ends_at=self._clock() + timeout_s)
        for name in self._order(request, only, rules):
            if (routed := await self._try(name, prompt, caller, on_text, progress)) is not None:
                return routed
        # Those that said when to come back (429 with Retry-After) get a second attempt, if that is soon enough.
        for name in sorted(progress.waiting, key=lambda one: self.breakers[one].report.retry_s):
            pause_s = self.breakers[name].report.retry_s
            if pause_s < progress.ends_at - self._clock():
                # A little longer: the event loop's clock is another one than the circuit's.
                await anyio.sleep(pause_s + CLOCK_MARGIN_S)
                if (routed := await self._try(name, prompt, caller, on_text, progress)) is not None:
                    return routed
        raise self._failure(progress, timeout_s)

    def _order(self, request: ScoreRequest, only: Sequence[str], rules: ScoreWeights | None) -> list[str]:
        if not self.models:
            raise CapabilityMissing("No model is configured.", hint=NO_MODELS_HINT)
        for name in only:
            self.check_known(name)
        chosen = [one for one in self.score(request, rules) if not only or one.name in only]
        if fitting := [one.name for one in chosen if one.fits]:
            return fitting
        raise InvalidRequest(
            f"The request has about {request.input_tokens + (request.output_tokens or 0):,} tokens, more than the context"
            " window of any model.",
            hint="shorten it, ask for fewer output tokens, or configure a model with a larger `context`",
        )

    async def _try(
        self, name: str, prompt: ModelPrompt, caller: Caller, on_text: TextListener | None, progress: _AttemptProgress
    ) -> Routed | None:
        """Ask one candidate; None if it gave no answer, which is then among the failed attempts."""
        breaker = self.breakers[name]
        left_s = progress.ends_at - self._clock()
        # The event loop may end an attempt a moment before this clock says that the time is over: a time-out that took all of
        # the time is final, or another candidate would be asked after an agent may have acted.
        if progress.is_late or left_s <= 0:
            progress.is_late = True
            return None
        if (attempt := breaker.enter()) is None:
            rest_s = breaker.report.retry_s
            reason = f"its circuit is open for another {rest_s:.0f} s" if rest_s else "its circuit is being tested"
            progress.failed.append(FailedAttempt(model=name, reason=reason))
            return None
        started = self._clock()
        model = self.models[name]
        # An agent has all of the time: once it may have acted, no other candidate could go on in its place.
        limit_s = left_s if model.acts else min(self._attempt_s, left_s)
        try:
            with _abandoning(attempt), anyio.fail_after(limit_s):
                completion = await model.answer(prompt, caller, None if on_text is None else _collect(on_text))
        except TimeoutError:
            progress.is_late = limit_s >= left_s
            # A deadline that is shorter than an attempt may take says nothing about the candidate.
            failure = EndpointFailed(f"no answer within {limit_s:g} s", counts=limit_s >= self._attempt_s)
            self._note_failure(name, attempt, failure, started, progress)
            return None
        except EndpointFailed as failure:
            self._note_failure(name, attempt, failure, started, progress)
            if failure.retry_s is not None and name not in progress.waiting:
                progress.waiting.append(name)
            return None
        except MayHaveActed as failure:
            self._note_failure(name, attempt, EndpointFailed(failure.reason), started, progress)
            raise ToolFailed(
                f"`{name}` failed after it may have acted: {failure.reason}",
                hint="look at its effects before you call again",
                attempts=[one.as_object() for one in progress.failed],
            ) from failure
        attempt.note_success()
        return self._finish(name, prompt, completion, self._clock() - started, progress)

    def _finish(
        self, name: str, prompt: ModelPrompt, completion: Completion, seconds: float, progress: _AttemptProgress
    ) -> Routed:
        inputs, outputs = completion.input_tokens, completion.output_tokens
        if inputs is None:
            texts = [part for message in prompt.messages for part in message.content if isinstance(part, str)]
            inputs = estimate_tokens(" ".join([prompt.system or "", *texts]))
        outputs = estimate_tokens(completion.text) if outputs is None else outputs
        cost = estimate_cost(self.scorer.candidates[name], inputs, outputs)
        self.stats.record(
            ModelAttempt(
                name=name, is_success=True, seconds=seconds, input_tokens=inputs, output_tokens=outputs, cost=cost
            )
        )
        return Routed(
            model=name,
            completion=completion,
            input_tokens=inputs,
            output_tokens=outputs,
            cost=cost,
            seconds=seconds,
            failed=progress.failed,
        )

    def _note_failure(
        self, name: str, attempt: CircuitPass, failure: EndpointFailed, started: float, progress: _AttemptProgress
    ) -> None:
        if failure.counts:
            attempt.note_failure(retry_s=failure.retry_s)
        else:
            attempt.abandon()
        self.stats.record(ModelAttempt(name=name, is_success=False, seconds=self._clock() - started))
        progress.failed.append(FailedAttempt(model=name, reason=failure.reason))
        event(_log, logging.WARNING, "model failed", model=name, reason=failure.reason)

    def _failure(self, progress: _AttemptProgress, timeout_s: float) -> ToolpostError:
        attempts = [one.as_object() for one in progress.failed]
        if progress.is_late:
            return ToolTimedOut(
                f"No model answered within {timeout_s:g} s.",
                timeout_ms=round(timeout_s * 1000),
                hint="give it more time, or ask for less",
                attempts=attempts,
            )
        pauses = [self.breakers[one.model].report.retry_s for one in progress.failed]
        retry_s = min((pause for pause in pauses if pause > 0), default=0.0)
        again = f"try again in {retry_s:.0f} s; " if retry_s else ""
        # The reasons are in the details, too; people at a terminal see only the message.
        reasons = "; ".join(f"{one.model}: {one.reason.rstrip('.')}" for one in progress.failed[:REASONS_SHOWN])
        return UpstreamUnavailable(
            f"No model answered: {reasons}." if reasons else "No model answered.",
            hint=f"{again}`router_fallback` shows their circuits",
            attempts=attempts,
            retryAfterMs=round(retry_s * 1000),
        )


@contextmanager
def _abandoning(attempt: CircuitPass) -> Iterator[None]:
    """Release a half-open circuit's one attempt if it is cancelled, or ends with an unexpected error."""
    try:
        yield
    except (EndpointFailed, MayHaveActed, TimeoutError):
        raise
    except BaseException:
        attempt.abandon()
        raise


def _collect(on_text: TextListener) -> TextListener:
    """Pass on the end of an attempt's answer so far instead of its pieces, of which progress may show only some."""
    tail = ""

    def listen(piece: str) -> None:
        nonlocal tail
        tail = (tail + piece)[-TAIL_LIMIT:]
        on_text(tail)

    return listen
