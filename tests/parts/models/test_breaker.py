"""The circuit breaker, on a clock that is set by hand."""

from toolpost.parts.models.breaker import Breaker, CircuitPass, CircuitState


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def passed(breaker: Breaker) -> CircuitPass:
    attempt = breaker.enter()
    assert attempt is not None
    return attempt


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(clock)
    for _ in range(3):
        passed(breaker).note_failure()
    return breaker


def test_three_failures_in_a_row_open_it_for_a_minute() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    for _ in range(2):
        passed(breaker).note_failure()
    passed(breaker).note_success()
    assert breaker.report.failures == 0

    breaker = opened(clock)
    assert (breaker.report.state, breaker.report.retry_s) == (CircuitState.OPEN, 60)
    assert not breaker.enter()
    clock.now += 59.9
    assert not breaker.enter()


def test_half_open_it_lets_one_attempt_pass() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 60
    states = [breaker.report.state]
    probe = passed(breaker)
    assert not breaker.enter()
    probe.note_success()
    states.append(breaker.report.state)
    assert states == [CircuitState.HALF_OPEN, CircuitState.CLOSED]
    assert breaker.enter()
    assert breaker.enter()


def test_an_attempt_that_fails_opens_it_again() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 60
    passed(breaker).note_failure()
    assert (breaker.report.state, breaker.report.retry_s) == (CircuitState.OPEN, 60)


def test_an_attempt_that_is_abandoned_leaves_the_next_one_its_turn() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 60
    passed(breaker).abandon()
    assert breaker.report.state is CircuitState.HALF_OPEN
    assert breaker.enter()


def test_a_candidate_says_itself_how_long_it_wants_to_be_left_alone() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    passed(breaker).note_failure(retry_s=5)
    assert (breaker.report.state, breaker.report.retry_s) == (CircuitState.OPEN, 5)
    clock.now += 5
    assert breaker.enter()


def test_reset_closes_it() -> None:
    breaker = opened(Clock())
    breaker.reset()
    assert (breaker.report.state, breaker.report.failures) == (CircuitState.CLOSED, 0)
    assert breaker.enter()


def test_a_clock_that_jumps_back_keeps_it_open_no_longer_than_it_says() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now -= 30
    assert breaker.report.retry_s == 90
    clock.now += 90
    assert breaker.enter()


def test_an_attempt_that_began_before_it_opened_is_not_taken_for_the_test() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    slow = passed(breaker)
    for _ in range(3):
        passed(breaker).note_failure()
    clock.now += 60
    probe = passed(breaker)
    slow.abandon()
    assert not breaker.enter()
    probe.note_success()
    assert breaker.report.state is CircuitState.CLOSED


def test_a_candidate_that_fails_on_and_on_is_left_alone_however_short_a_pause_it_asks_for() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    for _ in range(3):
        passed(breaker).note_failure(retry_s=0)
    assert (breaker.report.state, breaker.report.retry_s) == (CircuitState.OPEN, 60)
    clock.now += 60
    passed(breaker).note_failure(retry_s=300)
    assert breaker.report.retry_s == 300
