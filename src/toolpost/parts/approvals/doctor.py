"""Checks of approvals for `toolpost doctor`: the rules, and the VRF."""

from collections.abc import Sequence
from pathlib import Path

from toolpost.contracts import BadConfiguration
from toolpost.parts import PartDoctor
from toolpost.parts.approvals.settings import (
    APPROVALS,
    OPERATOR_VOTER,
    PEERS,
    ApprovalSettings,
    check_approvals,
    voters_of,
)
from toolpost.settings import Config, read_secret
from toolpost.terminal import Diagnosis, ok, problem, warning


class ApprovalsDoctor(PartDoctor):
    """Looks at the rules."""

    async def check_setup(self, config: Config) -> Sequence[Diagnosis]:
        """Find rules that cannot be met, and voters who cannot vote."""
        settings = APPROVALS.of(config)
        findings = []
        try:
            check_approvals(settings)
        except BadConfiguration as error:
            return [problem("approvals", error.message.removesuffix("."), hint=error.hint or "")]
        if settings.rules:
            findings.append(ok("approvals", f"rules: {', '.join(settings.rules)}"))
        self_approved = [name for name, rule in settings.rules.items() if rule.requester_may_vote]
        if self_approved and not config.requires_token:
            hint = "add [callers.NAME] with tokens: without them, an agent that leaves its token out is `local` as well"
            message = f"{', '.join(self_approved)}: requester_may_vote without authentication lets agents vote"
            findings.append(warning("approvals", message, hint=hint))
        findings += _find_mute_voters(config, settings)
        for name, peer in PEERS.of(config).items():
            try:
                if peer.token is not None:
                    read_secret(peer.token, project=Path(config.project), place=f"peers.{name}.token")
            except BadConfiguration as error:
                findings.append(problem("peers", error.message, hint=error.hint or ""))
            else:
                findings.append(ok("peers", f"`{name}`: {peer.url}"))
        return findings


def _find_mute_voters(config: Config, settings: ApprovalSettings) -> list[Diagnosis]:
    """Find voters who have no way to prove who they are."""
    findings = []
    # `oauth:SUBJECT` is who comes with a token of an issuer that no caller is mapped from.
    known = {OPERATOR_VOTER, "local", "token", "oauth", *config.callers}
    for name, rule in settings.rules.items():
        voters = voters_of(rule.voters, settings.roles)
        strange = [voter for voter in voters if voter.partition(":")[0] not in known]
        if strange and config.callers:
            hint = "add them to [callers], or have an administrator vote for them at the command line"
            findings.append(warning("approvals", f"{name}: {', '.join(strange)} cannot log in", hint=hint))
        if OPERATOR_VOTER in voters and settings.passphrase_hash is None and OPERATOR_VOTER not in settings.keys:
            hint = "have `toolpost auth passphrase` make a hash for approvals.passphrase_hash"
            findings.append(warning("approvals", f"{name}: `cli` has no passphrase to vote with", hint=hint))
    return findings
