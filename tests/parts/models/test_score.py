"""Scores: deterministic, between 0 and 1, and each factor counts."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolpost.parts.models.score import FACTORS, Candidate, Experience, Scorer, ScoreRequest, ScoreWeights

EQUAL = dict.fromkeys(FACTORS, 1.0)

LAWYER = Candidate(name="lawyer", domains=["law"], skills=["contracts"], description="Reads contracts and court files.")
CODER = Candidate(name="coder", domains=["programming"], skills=["python"], description="Writes and reviews code.")
PLAIN = Candidate(name="plain")


def factors_of(candidate: Candidate, known: Experience | None = None, **request: Any) -> dict[str, float]:
    scorer = Scorer([candidate, CODER if candidate is not CODER else LAWYER], ScoreWeights(EQUAL))
    asked = ScoreRequest(**({"prompt": "haiku"} | request))
    found = scorer.score(asked, {candidate.name: known or Experience()})
    return dict(next(one.factors for one in found if one.name == candidate.name))


def test_a_named_domain_and_skill_come_first() -> None:
    scorer = Scorer([LAWYER, CODER, PLAIN], ScoreWeights(EQUAL))
    first = {
        wanted: scorer.score(ScoreRequest(prompt="help", domain=wanted), {})[0].name
        for wanted in ("law", "Programming")
    }
    by_skill = scorer.score(ScoreRequest(prompt="help", skills=["python"]), {})[0].name

    assert first == {"law": "lawyer", "Programming": "coder"}
    assert by_skill == "coder"


def test_similar_words_count_and_named_ones_count_more() -> None:
    named = factors_of(LAWYER, domain="law")["domain"]
    similar = factors_of(LAWYER, domain="court contracts")["domain"]
    other = factors_of(LAWYER, domain="programming")["domain"]

    assert named == 1 > similar > other
    assert factors_of(PLAIN, domain="law")["domain"] == 0.5


def test_without_a_domain_the_prompt_is_compared() -> None:
    scorer = Scorer([LAWYER, CODER], ScoreWeights(EQUAL))

    assert scorer.score(ScoreRequest(prompt="review the code of this function"), {})[0].name == "coder"
    assert scorer.score(ScoreRequest(prompt="read this contract for me"), {})[0].name == "lawyer"


def test_what_does_not_fit_the_context_window_is_told_apart() -> None:
    small = Candidate(name="small", context=1_000)
    half, full = factors_of(small, tokens=500), factors_of(small, tokens=1_000)
    scorer = Scorer([small], ScoreWeights(EQUAL))

    assert (half["context"], full["context"]) == (1, 0)
    assert factors_of(small, tokens=750)["context"] == 0.5
    assert not scorer.score(ScoreRequest(prompt="x", tokens=1_001), {})[0].fits
    assert not scorer.score(ScoreRequest(prompt="x", tokens=500, output_tokens=600), {})[0].fits
    assert scorer.score(ScoreRequest(prompt="x", tokens=500), {})[0].fits
    assert factors_of(PLAIN, tokens=10**9)["context"] == 0.5


def test_cost_latency_reliability_and_preference() -> None:
    dear = Candidate(name="dear", input_price=15, output_price=75)
    cheap = Candidate(name="cheap", input_price=0.1, output_price=0.4)
    quick, slow = Experience(attempts=9, median_s=0.5), Experience(attempts=9, median_s=20)

    assert factors_of(PLAIN)["cost"] == 1 > factors_of(cheap)["cost"] > factors_of(dear)["cost"] > 0
    assert factors_of(PLAIN, quick)["latency"] > factors_of(PLAIN, slow)["latency"]
    assert factors_of(PLAIN, slow, deadline_s=20)["latency"] == 0.5
    assert factors_of(PLAIN)["latency"] == 0.5
    assert factors_of(PLAIN)["reliability"] == 0.9
    assert factors_of(PLAIN, Experience(attempts=20, failures=20))["reliability"] < 0.2
    assert factors_of(PLAIN, Experience(attempts=20))["reliability"] > 0.95
    assert factors_of(PLAIN, preferences={"plain": 1.0})["preference"] == 1
    assert factors_of(Candidate(name="x", preference=0.2))["preference"] == 0.2


def test_the_hash_is_that_of_the_canonical_weights() -> None:
    weights = dict.fromkeys(FACTORS, 2.0) | {"cost": 0.5}
    # RFC 8785: keys sorted, no blanks, whole numbers without a point.
    canonical = json.dumps({k: int(v) if v == int(v) else v for k, v in sorted(weights.items())}, separators=(",", ":"))

    assert ScoreWeights(weights).digest == hashlib.sha256(canonical.encode()).hexdigest()
    assert ScoreWeights(dict(reversed(weights.items()))).digest == ScoreWeights(weights).digest
    assert ScoreWeights(weights | {"cost": 0.6}).digest != ScoreWeights(weights).digest


def test_weights_that_are_all_nothing_still_score() -> None:
    scorer = Scorer([LAWYER, CODER], ScoreWeights(dict.fromkeys(FACTORS, 0.0)))
    assert [(one.name, one.total) for one in scorer.score(ScoreRequest(prompt=""), {})] == [
        ("coder", 0.5),
        ("lawyer", 0.5),
    ]


def test_without_candidates_there_are_no_scores() -> None:
    assert Scorer([], ScoreWeights(EQUAL)).score(ScoreRequest(prompt="haiku"), {}) == []


@settings(max_examples=150, deadline=None)
@given(
    prompt=st.text(max_size=60),
    domain=st.none() | st.sampled_from(["law", "poetry", "\ud800", ""]),
    skills=st.lists(st.text(max_size=8), max_size=3),
    tokens=st.none() | st.integers(0, 10**12),
    deadline=st.none() | st.floats(0.001, 1e9),
    output=st.none() | st.integers(1, 10**9),
    attempts=st.integers(0, 1000),
    failures=st.integers(0, 1000),
    median=st.none() | st.floats(0, 1e6),
    weights=st.lists(st.floats(0, 1000), min_size=7, max_size=7),
)
def test_any_request_has_scores_between_0_and_1_and_the_same_ones_again(
    prompt: str,
    domain: str | None,
    skills: list[str],
    tokens: int | None,
    deadline: float | None,
    output: int | None,
    attempts: int,
    failures: int,
    median: float | None,
    weights: list[float],
) -> None:
    request = ScoreRequest(
        prompt=prompt, domain=domain, skills=skills, tokens=tokens, deadline_s=deadline, output_tokens=output
    )
    known = {"lawyer": Experience(attempts=attempts, failures=min(failures, attempts), median_s=median)}
    rules = ScoreWeights(dict(zip(FACTORS, weights, strict=True)))
    scores = Scorer([LAWYER, CODER, PLAIN], rules).score(request, known)

    assert scores == Scorer([PLAIN, CODER, LAWYER], rules).score(request, known)
    assert all(0 <= value <= 1 for one in scores for value in (one.total, *one.factors.values()))


@pytest.mark.parametrize("factor", FACTORS)
def test_each_weight_counts(factor: str) -> None:
    only = ScoreWeights(dict.fromkeys(FACTORS, 0.0) | {factor: 1.0})
    request = ScoreRequest(prompt="x", domain="law", skills=["python"], tokens=600, preferences={"lawyer": 0.9})
    one = Scorer([LAWYER, CODER], only).score(request, {"lawyer": Experience(attempts=5, median_s=1)})[0]
    assert one.total == one.factors[factor]
