"""Settings of the record, as plain values: `settings/audit.py` makes them. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

BATCH: Final = 500

ExportKind = Literal["file", "webhook", "otlp"]


@dataclass(frozen=True, kw_only=True)
class ExportSpec:
    """A destination of the audit."""

    name: str
    kind: ExportKind
    path: Path = Path()
    """Of a file."""
    url: str = ""
    secret: bytes = field(default=b"", repr=False)
    """The key of a webhook's signatures."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    begin: Literal["first", "now"] = "first"
    """With which entry a new destination begins: the first, or the next."""
    batch: int = BATCH
    """How many records are delivered at once, at most."""


@dataclass(frozen=True, kw_only=True)
class RetentionLimits:
    """How much of the audit is kept."""

    days: float | None = None
    mb: float | None = None
    """Megabytes, as JSON lines."""
    archive: Path | None = None
    """The folder for what is removed; None if it is not kept."""

    @property
    def is_limited(self) -> bool:
        """Whether anything is removed."""
        return self.days is not None or self.mb is not None
