"""What `toolpost doctor` says of approvals."""

import msgspec
import pytest

from tests.parts.approvals.bank import requiring
from toolpost.parts.approvals.doctor import ApprovalsDoctor
from toolpost.settings import CallerSettings

pytestmark = pytest.mark.anyio


async def test_rules_and_voters_are_looked_at() -> None:
    doctor = ApprovalsDoctor()
    good = await doctor.check_setup(requiring())
    bad = await doctor.check_setup(requiring(votes=2))
    callers = {"ann": CallerSettings(token_env="ANN")}
    config = msgspec.structs.replace(requiring(voters=["ann", "ben"]), callers=callers)
    strange = await doctor.check_setup(config)

    assert [finding.message for finding in good] == ["rules: money"]
    assert "2 votes are needed" in bad[0].message
    assert "ben cannot log in" in strange[1].message
