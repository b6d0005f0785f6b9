"""What `toolpost doctor` says of approvals: which rules there are, and whether the VRF is there."""

from collections.abc import Sequence
from importlib.util import find_spec

from toolpost.cli.doctor.findings import Finding, note, ok, problem, warning
from toolpost.contracts.errors import BadConfiguration
from toolpost.parts.approvals.settings import APPROVALS, OPERATOR_VOTER, check_approvals, voters_of
from toolpost.parts.base import PartDoctor
from toolpost.settings import Config


class ApprovalsDoctor(PartDoctor):
    """Looks at the rules."""

    async def check_setup(self, config: Config) -> Sequence[Finding]:
        """Find rules that cannot be met, and voters who cannot vote."""
        settings = APPROVALS.of(config)
        findings = []
        try:
            check_approvals(settings)
        except BadConfiguration as error:
            return [problem("approvals", error.message.removesuffix("."), hint=error.hint or "")]
        if settings.rules:
            findings.append(ok("approvals", f"rules: {', '.join(settings.rules)}"))
        known = {OPERATOR_VOTER, "local", "token", *config.callers}
        for name, rule in settings.rules.items():
            strange = [
                voter for voter in voters_of(rule.voters, settings.roles) if voter.partition(":")[0] not in known
            ]
            if strange and config.callers:
                hint = "add them to [callers], or vote for them at the command line: --as NAME"
                findings.append(warning("approvals", f"{name}: {', '.join(strange)} cannot log in", hint=hint))
        if "approvals" in config.plugins.bundled and find_spec("nacl") is None:
            findings.append(
                note("vrf", "vrf_eval and vrf_verify are not there: the extra `approvals` is not installed")
            )
        return findings
