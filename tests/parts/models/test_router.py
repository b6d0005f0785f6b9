"""The router: the best first, then the next; what counts against whom; never again after a possible side effect."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.waiting import until
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId
from toolpost.contracts.errors import (
    CapabilityMissing,
    InvalidRequest,
    NotFound,
    ToolFailed,
    ToolTimedOut,
    UpstreamUnavailable,
)
from toolpost.parts.models.breaker import CircuitState
from toolpost.parts.models.endpoint import Completion, EndpointFailed, ModelPrompt, TextListener
from toolpost.parts.models.router import MayHaveActed, Model, Routed, Router
from toolpost.parts.models.score import FACTORS, Candidate, Scorer, ScoreRequest, ScoreWeights
from toolpost.parts.models.stats import Stats
from toolpost.store import open_store

pytestmark = pytest.mark.anyio

CALLER = Caller(id=CallerId("local"), transport="memory")
PREFERENCE_ONLY = ScoreWeights(dict.fromkeys(FACTORS, 0.0) | {"preference": 1.0})


class Scripted:
    """A model that does one thing after another."""

    def __init__(self, *does: Any, acts: bool = False) -> None:
        self.acts = acts
        self._does = list(does)
        self.calls = 0

    async def answer(self, prompt: ModelPrompt, caller: Caller, on_text: TextListener | None) -> Completion:
        self.calls += 1
        does = self._does.pop(0) if len(self._does) > 1 else self._does[0]
        if isinstance(does, Exception):
            raise does
        if isinstance(does, float):
            await anyio.sleep(does)
        return Completion(text=str(does), input_tokens=10, output_tokens=2)


def router_of(*models: Scripted, stats: Stats | None = None, **options: Any) -> Router:
    """Make a router whose first model is the best."""
    named: dict[str, Model] = {f"m{number}": model for number, model in enumerate(models)}
    candidates = [
        Candidate(name=name, preference=1 - number / 10, input_price=100, context=10_000)
        for number, name in enumerate(named)
    ]
    return Router(named, Scorer(candidates, PREFERENCE_ONLY), stats or Stats(None), **options)  # type: ignore[arg-type]


async def ask(router: Router, timeout_s: float = 30.0, **request: Any) -> Routed:
    only = request.pop("only", ())
    return await router.call(
        ModelPrompt.of_text("haiku"),
        ScoreRequest(prompt="haiku", **request),
        caller=CALLER,
        timeout_s=timeout_s,
        only=only,
    )


def failing(**options: Any) -> EndpointFailed:
    return EndpointFailed("it is broken", **options)


async def test_the_best_answers_and_the_next_one_if_it_fails() -> None:
    first, second = Scripted(failing(), "first"), Scripted("second")
    router = router_of(first, second)
    one, two = await ask(router), await ask(router)

    assert (one.model, [failed.model for failed in one.failed]) == ("m1", ["m0"])
    assert (two.model, two.failed) == ("m0", [])
    assert one.cost == 10 * 100 / 1_000_000
    assert router.breakers["m0"].report.failures == 0


async def test_three_failures_open_a_circuit_and_nobody_is_asked_in_vain() -> None:
    first, second = Scripted(failing()), Scripted("second")
    router = router_of(first, second)
    answers = [await ask(router) for _ in range(5)]

    assert first.calls == 3
    assert router.breakers["m0"].report.state is CircuitState.OPEN
    assert "circuit is open" in answers[-1].failed[0].reason
    assert router.winner(router.score(ScoreRequest(prompt="x"))) == "m1"


async def test_when_all_circuits_are_open_the_error_says_when_to_come_back() -> None:
    router = router_of(Scripted(failing()), failures=1, pause_s=30)
    with pytest.raises(UpstreamUnavailable) as first:
        await ask(router)
    with pytest.raises(UpstreamUnavailable) as second:
        await ask(router)

    assert first.value.message == "No model answered: m0: it is broken."
    assert first.value.details["attempts"] == [{"model": "m0", "reason": "it is broken"}]
    assert 29_000 <= second.value.details["retryAfterMs"] <= 30_000
    assert router.winner(router.score(ScoreRequest(prompt="x"))) is None


async def test_an_attempt_that_hangs_is_given_up_for_the_next() -> None:
    hanging = Scripted(60.0)
    router = router_of(hanging, Scripted("second"), attempt_s=0.05)
    assert (await ask(router)).model == "m1"
    assert router.breakers["m0"].report.failures == 1


async def test_a_short_deadline_opens_no_circuit() -> None:
    router = router_of(Scripted(60.0), attempt_s=30)
    for _ in range(4):
        with pytest.raises(ToolTimedOut, match="No model answered within"):
            await ask(router, timeout_s=0.01)
    assert router.breakers["m0"].report.failures == 0


async def test_a_request_that_is_refused_opens_no_circuit() -> None:
    router = router_of(Scripted(failing(counts=False)), Scripted("second"))
    for _ in range(4):
        assert (await ask(router)).model == "m1"
    assert router.breakers["m0"].report.state is CircuitState.CLOSED


async def test_a_cancelled_call_leaves_the_half_open_circuit_to_others() -> None:
    model = Scripted(failing(), 60.0, "back")
    router = router_of(model, failures=1, pause_s=0.01)
    with pytest.raises(UpstreamUnavailable):
        await ask(router)
    await until(lambda: router.breakers["m0"].report.state is CircuitState.HALF_OPEN)
    with anyio.move_on_after(0.05):
        await ask(router)
    assert router.breakers["m0"].report.state is CircuitState.HALF_OPEN
    assert (await ask(router)).completion.text == "back"


async def test_only_one_attempt_tests_a_half_open_circuit() -> None:
    model = Scripted(failing(), 0.1)
    router = router_of(model, failures=1, pause_s=0.01)
    with pytest.raises(UpstreamUnavailable):
        await ask(router)
    await until(lambda: router.breakers["m0"].report.state is CircuitState.HALF_OPEN)
    outcomes: list[object] = []

    async def note(call: Callable[[], Any]) -> None:
        try:
            outcomes.append((await call()).completion.text)
        except UpstreamUnavailable as error:
            outcomes.append(error.details["attempts"][0]["reason"])

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(note, lambda: ask(router))
    assert sorted(map(str, outcomes)) == ["0.1", "its circuit is being tested", "its circuit is being tested"]


async def test_who_asks_for_a_pause_is_asked_last_and_again_if_there_is_time() -> None:
    busy = Scripted(failing(retry_s=0.1), "rested")
    router = router_of(busy, Scripted(failing()))
    assert (await ask(router)).completion.text == "rested"

    busy = Scripted(failing(retry_s=100), "rested")
    with pytest.raises(UpstreamUnavailable):
        await ask(router_of(busy))
    assert busy.calls == 1

    second = Scripted("second")
    assert (await ask(router_of(Scripted(failing(retry_s=0.1), "rested"), second))).model == "m1"


async def test_after_a_possible_side_effect_nothing_else_is_tried() -> None:
    second = Scripted("second")
    router = router_of(Scripted(MayHaveActed("it died in the middle"), acts=True), second)
    with pytest.raises(ToolFailed, match="may have acted") as caught:
        await ask(router)
    assert second.calls == 0
    assert caught.value.details["attempts"] == [{"model": "m0", "reason": "it died in the middle"}]

    slow = router_of(Scripted(60.0, acts=True), second, attempt_s=0.01)
    with pytest.raises(ToolTimedOut):
        await ask(slow, timeout_s=0.2)
    assert second.calls == 0

    # Also by a clock that stands still, which is one that is a moment behind the event loop's.
    slow = router_of(Scripted(60.0, acts=True), second, attempt_s=0.01, clock=lambda: 0.0)
    with pytest.raises(ToolTimedOut):
        await ask(slow, timeout_s=0.05)
    assert second.calls == 0


async def test_models_can_be_named_and_must_be_known() -> None:
    router = router_of(Scripted("first"), Scripted("second"))
    assert (await ask(router, only=["m1"])).model == "m1"
    with pytest.raises(NotFound, match="Unknown model `m9`"):
        await ask(router, only=["m9"])
    with pytest.raises(NotFound):
        router.score(ScoreRequest(prompt="x", preferences={"nobody": 1}))


async def test_nothing_to_ask_and_nothing_that_fits() -> None:
    with pytest.raises(CapabilityMissing, match="No model is configured"):
        await ask(router_of())
    with pytest.raises(InvalidRequest, match="20,000 tokens"):
        await ask(router_of(Scripted("first")), tokens=20_000)


async def test_what_is_learned_changes_the_order(tmp_path: Any) -> None:
    rules = ScoreWeights(dict.fromkeys(FACTORS, 0.0) | {"reliability": 1.0})
    async with open_store("sqlite::memory:") as store:
        router = router_of(Scripted(failing(), "first"), Scripted("second"), stats=Stats(store))
        router.scorer.rules = rules
        assert (await ask(router)).model == "m1"
        assert (await ask(router)).model == "m1"
        assert [one.name for one in router.score(ScoreRequest(prompt="x"))] == ["m1", "m0"]
