"""Whose credentials a caller uses."""

import pytest

from toolpost.base.caller import Caller, owner_of
from toolpost.base.ids import CallerId
from toolpost.settings.callers import RESERVED


@pytest.mark.parametrize(
    ("name", "transport", "owner"),
    [
        ("local", "stdio", ""),
        ("local", "http", ""),
        ("token", "http", ""),
        ("cli", "cli", ""),
        ("application", "memory", ""),
        ("search", "memory", ""),
        ("application", "http", "application"),
        ("ann", "http", "ann"),
        ("ann", "memory", "ann"),
        ("oauth:subject", "http", "oauth:subject"),
    ],
)
def test_callers_without_a_name_share_theirs(name: str, transport: str, owner: str) -> None:
    assert owner_of(Caller(id=CallerId(name), transport=transport)) == owner


def test_nobody_can_be_configured_under_a_name_that_shares() -> None:
    assert {name for name in RESERVED if owner_of(Caller(id=CallerId(name), transport="http")) == ""} == {
        "cli",
        "local",
        "token",
    }


@pytest.mark.parametrize(("admin", "owner"), [("ann", "ann"), ("oauth:subject", "oauth:subject"), ("token", "")])
def test_who_calls_with_the_rights_of_another_has_its_own(admin: str, owner: str) -> None:
    assert owner_of(Caller(id=CallerId("ben"), transport="http", acted_by=CallerId(admin))) == owner
