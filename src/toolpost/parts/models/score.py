"""How well each candidate suits a request, from 0 to 1: a pure function, so that the same facts always give the same scores.

    score = sum(weight * factor) / sum(weight)

Factors, each from 0 to 1; what is not known counts 0.5:

domain       1 if the request's domain is one of the candidate's; else how well the local search ranker finds the candidate by it.
             Without a domain, from 0.5 up by how well it is found by the prompt
skill        the same for each requested skill, and their mean; 0.5 if none is requested
context      1 up to half of the context window, then falling to 0 where the request fills it
cost         1 for a free candidate, 0.5 at `USUAL_PRICE` for a million of the request's tokens
latency      1 for an immediate answer, 0.5 if the median answer takes as long as the deadline (`USUAL_S` without one)
reliability  the part of its recent attempts that succeeded, beginning at `PRIOR`
preference   as the call or the configuration says

`Rules.digest` identifies the weights, which shows whether two scores were made by the same rules.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import rfc8785

from toolpost.discovery import estimate_tokens, index_texts

UNKNOWN: Final = 0.5
USUAL_PRICE: Final = 1.0
USUAL_S: Final = 10.0
USUAL_OUTPUT_TOKENS: Final = 500
PRIOR: Final = 0.9
PRIOR_WEIGHT: Final = 5
"""How many attempts the prior of the reliability is worth: one failure of a new candidate is no verdict."""

INEXACT: Final = 0.9
"""A domain that is merely similar counts at most this much, so that one that is named always comes first."""

TEXT_LIMIT: Final = 300
"""How many characters of a prompt are compared: its subject is named early, and every word costs time. With 300 a call costs
the router 0.8 ms, with 1,000 it is 1.5 ms (`scripts/bench models`)."""

FACTORS: Final = ("domain", "skill", "context", "cost", "latency", "reliability", "preference")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """The settings of a model."""

    name: str
    domains: Sequence[str] = ()
    skills: Sequence[str] = ()
    description: str = ""
    context: int | None = None
    input_price: float = 0.0
    output_price: float = 0.0
    preference: float = UNKNOWN


@dataclass(frozen=True, kw_only=True)
class Experience:
    """Statistics of recent attempts."""

    attempts: int = 0
    failures: int = 0
    median_s: float | None = None
    output_tokens: float | None = None
    """Of a mean answer."""


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """The work that a model is chosen for."""

    prompt: str
    domain: str | None = None
    skills: Sequence[str] = ()
    tokens: int | None = None
    """Size of the input; estimated from the prompt if not given."""
    deadline_s: float | None = None
    output_tokens: int | None = None
    preferences: Mapping[str, float] = field(default_factory=dict)

    @property
    def input_tokens(self) -> int:
        return estimate_tokens(self.prompt) if self.tokens is None else self.tokens


@dataclass(frozen=True, kw_only=True)
class Score:
    """The score of one candidate."""

    name: str
    total: float
    factors: Mapping[str, float]
    fits: bool
    """Whether the request fits into its context window; unknown windows fit everything."""


class ScoreWeights:
    """The weights, and their digest: SHA-256 over the canonical JSON (RFC 8785) of the weights by factor."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = {factor: float(weights[factor]) for factor in FACTORS}
        self.digest = hashlib.sha256(rfc8785.dumps(self.weights)).hexdigest()
        self._sum = sum(self.weights.values())

    def total(self, factors: Mapping[str, float]) -> float:
        """Return the weighted mean; 0.5 if all weights are 0."""
        if not self._sum:
            return UNKNOWN
        return round(sum(self.weights[factor] * factors[factor] for factor in FACTORS) / self._sum, 6)


class Scorer:
    """Scores a fixed set of candidates, whose descriptions are indexed once."""

    def __init__(self, candidates: Sequence[Candidate], rules: ScoreWeights) -> None:
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.rules = rules
        self._rank_texts = index_texts({candidate.name: _describe(candidate) for candidate in candidates})
        self._has_words = any(one.domains or one.skills or one.description for one in candidates)
        # Calls often repeat their domain and skills; a prompt is scored once more when it is called.
        self._compare = lru_cache(maxsize=512)(self._rank)

    def score(
        self, request: ScoreRequest, known: Mapping[str, Experience], rules: ScoreWeights | None = None
    ) -> list[Score]:
        """Return the score of every candidate, best first; equal ones by name."""
        used = rules or self.rules
        scores = [
            self._score(one, request, known.get(one.name, Experience()), used) for one in self.candidates.values()
        ]
        return sorted(scores, key=lambda score: (-score.total, score.name))

    def _score(self, candidate: Candidate, request: ScoreRequest, known: Experience, rules: ScoreWeights) -> Score:
        room = _room(candidate, request)
        factors = {
            "domain": self._domain_fit(candidate, request),
            "skill": self._skill_fit(candidate, request),
            "context": UNKNOWN if room is None else max(0.0, min(1.0, 2 * room)),
            "cost": _cost_fit(candidate, request, known),
            "latency": _latency_fit(request, known),
            "reliability": (known.attempts - known.failures + PRIOR * PRIOR_WEIGHT) / (known.attempts + PRIOR_WEIGHT),
            "preference": request.preferences.get(candidate.name, candidate.preference),
        }
        rounded = {factor: round(max(0.0, min(1.0, value)), 6) for factor, value in factors.items()}
        return Score(name=candidate.name, total=rules.total(rounded), factors=rounded, fits=room is None or room > 0)

    def _domain_fit(self, candidate: Candidate, request: ScoreRequest) -> float:
        if request.domain is not None:
            return self._fit(candidate, request.domain, candidate.domains)
        # A prompt can speak for a candidate, and never against one: few prompts name their field.
        return UNKNOWN + (1 - UNKNOWN) * self._compare(request.prompt[:TEXT_LIMIT]).get(candidate.name, 0.0)

    def _skill_fit(self, candidate: Candidate, request: ScoreRequest) -> float:
        if not request.skills:
            return UNKNOWN
        return sum(self._fit(candidate, skill, candidate.skills) for skill in request.skills) / len(request.skills)

    def _fit(self, candidate: Candidate, wanted: str, stated: Sequence[str]) -> float:
        if wanted.casefold() in (one.casefold() for one in stated):
            return 1.0
        return INEXACT * self._compare(wanted[:TEXT_LIMIT]).get(candidate.name, 0.0) if stated else UNKNOWN

    def _rank(self, text: str) -> Mapping[str, float]:
        """Return how well each candidate is found by a text."""
        return self._rank_texts(text) if self._has_words else {}


def _describe(candidate: Candidate) -> tuple[str, str]:
    """Return the title and the text by which a candidate is found."""
    texts = (candidate.description, ", ".join(candidate.domains), ", ".join(candidate.skills))
    return " ".join((*candidate.domains, *candidate.skills)), ". ".join(text for text in texts if text)


def estimate_cost(candidate: Candidate, input_tokens: float, output_tokens: float) -> float:
    """Return what so many tokens cost, in the currency of the configured prices."""
    return (input_tokens * candidate.input_price + output_tokens * candidate.output_price) / 1_000_000


def _room(candidate: Candidate, request: ScoreRequest) -> float | None:
    """Return the part of the context window that the request leaves free; None if its size is not known."""
    if candidate.context is None:
        return None
    return 1 - (request.input_tokens + (request.output_tokens or 0)) / candidate.context


def _cost_fit(candidate: Candidate, request: ScoreRequest, known: Experience) -> float:
    output = request.output_tokens or known.output_tokens or USUAL_OUTPUT_TOKENS
    tokens = request.input_tokens + output
    price = estimate_cost(candidate, request.input_tokens, output) / tokens * 1_000_000
    return USUAL_PRICE / (USUAL_PRICE + price)


def _latency_fit(request: ScoreRequest, known: Experience) -> float:
    if known.median_s is None:
        return UNKNOWN
    usual_s = request.deadline_s or USUAL_S
    return usual_s / (usual_s + known.median_s)
