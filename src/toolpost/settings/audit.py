"""`[audit]`: how much of the record is kept. `[export.NAME]`: where it is passed on to."""

import base64
import binascii
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from toolpost.audit.spec import ExportKind, ExportSpec, RetentionLimits
from toolpost.base.redaction import remember_secrets
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings.marks import ADVANCED, SECRET
from toolpost.settings.variables import read_secret

_STANDARD: Final = "whsec_"

ExportName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=64)]


class AuditSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The record of calls: how much of it is kept, and contents of calls that are kept for review."""

    days: Annotated[
        Annotated[float, Meta(gt=0, le=36_500)] | None, Meta(description="remove entries that are older")
    ] = None
    mb: Annotated[
        Annotated[float, Meta(gt=0, le=1_000_000)] | None,
        Meta(description="remove the oldest entries beyond so many megabytes, as JSON", extra=ADVANCED),
    ] = None
    archive: Annotated[
        str | None,
        Meta(
            description="folder for removed entries, relative to the project; without one they are deleted",
            extra=ADVANCED,
        ),
    ] = None

    sample: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="part of all calls whose arguments and results are kept for review, selected verifiably at random",
            extra=ADVANCED,
        ),
    ] = 0.0
    keep_days: Annotated[float, Meta(gt=0, le=3650, description="how long they are kept", extra=ADVANCED)] = 30.0

    def resolve_retention(self, project: Path) -> RetentionLimits:
        """Return the limits, with an absolute archive."""
        return RetentionLimits(
            days=self.days, mb=self.mb, archive=project / self.archive if self.archive is not None else None
        )


class ExportSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A destination of the audit."""

    kind: Annotated[
        ExportKind, Meta(description="JSON lines in a file, a signed webhook, or log records by OTLP over HTTP")
    ] = "file"
    path: Annotated[str, Meta(description="the file, relative to the project")] = ""
    url: Annotated[
        str, Meta(description="where to send it to; for OTLP the whole path, such as http://localhost:4318/v1/logs")
    ] = ""
    secret: Annotated[
        str | None,
        Meta(description="the secret that signs a webhook's requests, such as `${SECRET}`", extra=SECRET | ADVANCED),
    ] = None
    headers: Annotated[
        dict[str, str], Meta(description="HTTP headers of every request to it", extra=SECRET | ADVANCED)
    ] = {}
    begin: Annotated[
        Literal["first", "now"],
        Meta(description="with which entry a new destination begins: the first, or the next", extra=ADVANCED),
    ] = "first"

    def resolve(self, name: str, project: Path) -> ExportSpec:
        """Return the destination with its secrets; raises `BadConfiguration` for one that is missing."""
        return ExportSpec(
            name=name,
            kind=self.kind,
            path=project / self.path,
            url=self.url,
            secret=self._read_secret(name, project) if self.kind == "webhook" else b"",
            headers=self._read_headers(name, project),
            begin=self.begin,
        )

    def _read_secret(self, name: str, project: Path) -> bytes:
        """Read the key of the webhook's signatures.

        `whsec_` and base64 is how Standard Webhooks writes a secret, and how its libraries read one; any other is taken as it is.
        """
        place = f"export.{name}.secret"
        found = read_secret(self.secret or "", project=project, place=place)
        if len(found) < 16:
            raise BadConfiguration(
                f"{place} has fewer than 16 characters.",
                hint="a receiver could not tell our requests from others: make one with `openssl rand -hex 32`",
            )
        remember_secrets([found])
        if not found.startswith(_STANDARD):
            return found.encode()
        try:
            return base64.b64decode(found.removeprefix(_STANDARD), validate=True)
        except binascii.Error as error:
            raise BadConfiguration(
                f"{place} begins with {_STANDARD}, and the rest is not base64.",
                hint=f"as in `echo {_STANDARD}$(openssl rand -base64 32)`",
            ) from error

    def _read_headers(self, name: str, project: Path) -> dict[str, str]:
        found = {
            key: read_secret(text, project=project, place=f"export.{name}.headers.{key}")
            for key, text in self.headers.items()
        }
        remember_secrets([value for value in found.values() if len(value) >= 8])
        return found


def check_export(name: str, export: ExportSettings) -> None:
    """Raise `BadConfiguration` for settings that do not go together."""
    place = f"export.{name}"
    if export.kind == "file":
        if not export.path or export.url:
            raise BadConfiguration(f"{place}: a file needs `path`, and has no `url`.", hint='path = "audit.jsonl"')
        if export.secret is not None or export.headers:
            raise BadConfiguration(
                f"{place}: `secret` and `headers` are for requests, and not for a file.", hint="remove them"
            )
        return
    url = urlsplit(export.url)
    if url.scheme not in ("http", "https") or not url.hostname or export.path:
        raise BadConfiguration(
            f"{place}: {export.kind} needs `url`, and has no `path`.", hint='url = "https://collector.example/v1/logs"'
        )
    if "@" in url.netloc:
        raise BadConfiguration(f"{place}.url has a user or password.", hint="send credentials in `headers` instead")
    if export.kind == "otlp" and export.secret is not None:
        raise BadConfiguration(
            f"{place}: `secret` signs the requests of a webhook alone.",
            hint="authenticate with `headers`, or remove it",
        )
    if export.kind == "webhook" and export.secret is None:
        raise BadConfiguration(
            f"{place}: a webhook needs `secret`.",
            hint='requests are signed with it: secret = "${WEBHOOK_SECRET}"',
        )
