"""Held against claims of our own and, where they are at hand, those of two schema registries.

No unsound `compatible`, and every disagreement has its reason.
"""

import pytest

from tests.contracts.compatibility.claims import CLAIMS, REASONS, Judged, judged_claims, written_claims
from toolpost.contracts.compatibility.containment import Containment

of_registries = pytest.mark.outside(CLAIMS)


@pytest.fixture(scope="module")
def claims() -> list[Judged]:
    return list(judged_claims())


def test_every_claim_of_our_own_is_agreed_with() -> None:
    assert [claim for claim in written_claims() if not claim.is_agreed] == []


@of_registries
def test_nearly_all_claims_are_agreed_with_and_the_others_have_a_reason(claims: list[Judged]) -> None:
    disagreed = {claim.id for claim in claims if not claim.is_agreed}

    assert disagreed == REASONS.keys()
    assert sum(claim.is_agreed for claim in claims) / len(claims) >= 0.95


@of_registries
def test_nothing_is_called_contained_that_is_not(claims: list[Judged]) -> None:
    bold = {claim.id for claim in claims if claim.containment is Containment.YES and not claim.label}

    # Each of these labels is wrong, and its reason says why: nobody finds a value that the new schema loses.
    assert bold == {
        "String: pattern 1|fwd",
        "String: pattern 2|bwd",
        "String: pattern 2|fwd",
        "Const|bwd",
        "Const|fwd",
        "Complex: anyOf 1|fwd",
        "Complex: oneOf 1|fwd",
        "Conditional: if|bwd",
        "Conditional: if|fwd",
        "any_of/number_1.json",
        "any_of/objects_3.json",
        "range/redundant_minimum_3.json",
    }
