"""What `toolpost doctor` says of approvals."""

import msgspec
import pytest

from tests.parts.approvals.bank import requiring
from toolpost.parts.approvals.doctor import ApprovalsDoctor
from toolpost.parts.approvals.settings import PEERS, PeerSettings
from toolpost.settings.callers import CallerSettings

pytestmark = pytest.mark.anyio


async def test_rules_and_voters_are_looked_at() -> None:
    doctor = ApprovalsDoctor()
    good = await doctor.check_setup(requiring())
    bad = await doctor.check_setup(requiring(votes=2))
    callers = {"ann": CallerSettings(token="${ANN}")}
    config = msgspec.structs.replace(requiring(voters=["ann", "ben"]), callers=callers)
    strange = await doctor.check_setup(config)

    alone = await doctor.check_setup(requiring(requester_may_vote=True))
    named = await doctor.check_setup(
        msgspec.structs.replace(requiring(requester_may_vote=True, voters=["ann"]), callers=callers)
    )
    assert "requester_may_vote without authentication" in alone[1].message
    assert [finding.message for finding in named] == ["rules: money"]

    assert [finding.message for finding in good] == ["rules: money", "money: `cli` has no passphrase to vote with"]
    assert "2 votes are needed" in bad[0].message
    assert "ben cannot log in" in strange[1].message


async def test_peers_without_their_token_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERLIN_TOKEN", "token-of-ours")
    peers = {
        "berlin": PeerSettings(url="https://berlin.example", key="x", token="${BERLIN_TOKEN}"),
        "oslo": PeerSettings(url="https://oslo.example", key="x", token="${OSLO_TOKEN}"),
    }
    config = msgspec.structs.replace(requiring(voters=["oauth:ann"]), callers={"ben": CallerSettings(token="${BEN}")})
    findings = await ApprovalsDoctor().check_setup(PEERS.put(config, peers))

    assert [(str(finding.level), finding.message) for finding in findings] == [
        ("ok", "rules: money"),
        ("ok", "`berlin`: https://berlin.example"),
        ("problem", "peers.oslo.token: the environment variable OSLO_TOKEN is not set."),
    ]
