"""What voters see of arguments."""

from typing import Any

import pytest

from toolpost.base import REDACTED
from toolpost.parts.approvals.review import redact_for_review


def test_reviewers_see_the_structure_below_secret_names() -> None:
    value = {
        "to": "ann",
        "auth": {"transfer_to": "eve", "amount": 5, "force": True, "then": None, "more": [{"to": "mallory"}, "x"]},
        "list": [{"password": "p"}, 7],
    }

    assert redact_for_review(value) == {
        "to": "ann",
        "auth": {
            "transfer_to": REDACTED,
            "amount": REDACTED,
            "force": True,
            "then": None,
            "more": [{"to": REDACTED}, REDACTED],
        },
        "list": [{"password": REDACTED}, 7],
    }


@pytest.mark.parametrize("value", [{"x" * 257: 1}, {str(number): 1 for number in range(2_001)}])
def test_what_is_beyond_the_limits_cannot_be_reviewed(value: Any) -> None:
    with pytest.raises(ValueError, match="a name has more than"):
        redact_for_review({"list": [value]})
