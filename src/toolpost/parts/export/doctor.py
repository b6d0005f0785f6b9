"""What `toolpost doctor` says of exports: whether their secrets can be read, which a gateway does not start without."""

from collections.abc import Sequence
from pathlib import Path

from toolpost.contracts import BadConfiguration
from toolpost.parts import PartDoctor
from toolpost.parts.export.settings import EXPORTS, RETENTION
from toolpost.settings import Config, is_trustworthy
from toolpost.terminal import Finding, ok, problem, warning


class ExportDoctor(PartDoctor):
    """Looks at the settings; sends nothing."""

    async def check_setup(self, config: Config) -> Sequence[Finding]:
        """Check every destination, and whether what is removed is kept anywhere."""
        findings = []
        for name, export in EXPORTS.of(config).items():
            try:
                if export.kind == "webhook":
                    export.read_secret(name, Path(config.project))
                export.read_headers(name, Path(config.project))
            except BadConfiguration as error:
                findings.append(problem("export", error))
                continue
            if export.headers and not is_trustworthy(export.url):
                hint = "use an https:// URL"
                findings.append(
                    warning("export", f"`{name}`: its headers are sent to {export.url} without encryption", hint=hint)
                )
            else:
                findings.append(ok("export", f"`{name}`: {export.kind}, {export.path or export.url}"))
        retention = RETENTION.of(config)
        if retention.is_limited and retention.archive is None and not EXPORTS.of(config):
            hint = "set retention.archive to a folder, or [export.NAME], if it is to be kept elsewhere"
            findings.append(warning("retention", "old audit entries are removed, and kept nowhere else", hint=hint))
        return findings
