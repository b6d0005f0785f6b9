"""Locked tools compared with live ones."""

import pytest

from toolpost.contracts import Drift


def test_former_names_of_what_a_drift_says_warn_and_answer() -> None:
    drift = Drift(name="shop__sell", kind="removed", source="shop")

    with pytest.warns(DeprecationWarning, match=r"Drift\.failure"):
        assert drift.fault is drift.failure
    with pytest.warns(DeprecationWarning, match=r"Drift\.findings"):
        assert drift.suspicions is drift.findings
