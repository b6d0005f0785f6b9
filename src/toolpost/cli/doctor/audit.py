"""What `toolpost doctor` says of the record: whether exports can be opened, which a gateway does not start without."""

from collections.abc import Iterator
from pathlib import Path

from toolpost.contracts.errors import BadConfiguration
from toolpost.settings import Config, is_trustworthy
from toolpost.terminal.findings import Diagnosis, ok, problem, warning


def check_exports(config: Config) -> Iterator[Diagnosis]:
    """Check the settings of every destination, and whether what is removed is kept anywhere. Sends nothing."""
    for name, export in config.export.items():
        try:
            export.resolve(name, Path(config.project))
        except BadConfiguration as error:
            yield problem("export", error)
            continue
        if export.headers and not is_trustworthy(export.url):
            hint = "use an https:// URL"
            yield warning("export", f"`{name}`: its headers are sent to {export.url} without encryption", hint=hint)
        else:
            yield ok("export", f"`{name}`: {export.kind}, {export.path or export.url}")
    limits = config.audit.resolve_retention(Path(config.project))
    if limits.is_limited and limits.archive is None and not config.export:
        hint = "set audit.archive to a folder, or [export.NAME], if it is to be kept elsewhere"
        yield warning("retention", "old audit entries are removed, and kept nowhere else", hint=hint)
