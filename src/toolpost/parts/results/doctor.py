"""Checks of large results for `toolpost doctor`."""

from collections.abc import Sequence
from importlib.util import find_spec

from toolpost.parts import PartDoctor
from toolpost.parts.results.settings import RESULTS, limit_of
from toolpost.settings import Config
from toolpost.terminal import Diagnosis, ok, warning


class ResultsDoctor(PartDoctor):
    """Looks at the settings."""

    async def check_setup(self, config: Config) -> Sequence[Diagnosis]:
        """Find unknown callers, and limits above the stored size; report the limit."""
        settings = RESULTS.of(config)
        if not settings.is_limited:
            return []
        findings = []
        for name, rule in settings.rules.items():
            # Callers of an issuer, and those without a name, are not configured one by one.
            for caller in rule.callers or ():
                if caller not in config.callers and caller not in ("local", "token", "cli"):
                    findings.append(
                        warning(
                            "results",
                            f"results.rules.{name}: there is no caller `{caller}`",
                            hint=f"add [callers.{caller}], or name it as `toolpost audit` shows it",
                        )
                    )
        if find_spec("re2") is None:
            findings.append(
                warning("results", "kept results cannot be searched", hint="pip install 'toolpost[results]'")
            )
        limit = limit_of(settings)
        general = "only where a rule says so" if limit is None else f"over {limit} bytes"
        findings.append(
            ok(
                "results",
                f"results are truncated {general}, and kept for {settings.keep_s:g} s, {settings.keep_mb} MB a caller",
            )
        )
        return findings
