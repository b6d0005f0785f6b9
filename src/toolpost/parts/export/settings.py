"""`[export.NAME]`: where the audit is passed on to. `[retention]`: how much of it is kept."""

import base64
import binascii
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from toolpost.base import remember_secrets
from toolpost.contracts import BadConfiguration
from toolpost.parts import Section
from toolpost.settings import ADVANCED, SECRET, read_secret

_STANDARD: Final = "whsec_"

Kind = Literal["file", "webhook", "otlp"]
ExportName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=64)]


class ExportSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A destination of the audit."""

    kind: Annotated[
        Kind, Meta(description="JSON lines in a file, a signed webhook, or log records by OTLP over HTTP")
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
    batch: Annotated[int, Meta(ge=1, le=5_000, description="entries in one request, at most", extra=ADVANCED)] = 500

    def read_secret(self, name: str, project: Path) -> bytes:
        """Read the key of the webhook's signatures; raises `BadConfiguration` if it is not set.

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
                f"{place} begins with {_STANDARD}, and what follows is not base64.",
                hint=f"as in `echo {_STANDARD}$(openssl rand -base64 32)`",
            ) from error

    def read_headers(self, name: str, project: Path) -> dict[str, str]:
        """Read the headers of requests; raises `BadConfiguration` for one that is missing."""
        found = {
            key: read_secret(text, project=project, place=f"export.{name}.headers.{key}")
            for key, text in self.headers.items()
        }
        remember_secrets([value for value in found.values() if len(value) >= 8])
        return found


def _check(name: str, export: ExportSettings) -> None:
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


EXPORTS: Final = Section[dict[str, ExportSettings]](
    name="export",
    struct=ExportSettings,
    default={},
    table=Annotated[dict[ExportName, ExportSettings], Meta(description="where the audit is passed on to, by name")],
    check_entry=_check,
)


class RetentionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much of the audit is kept; without these settings all of it."""

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
            description="folder for what is removed, relative to the project; without one it is not kept",
            extra=ADVANCED,
        ),
    ] = None

    @property
    def is_limited(self) -> bool:
        """Whether anything is removed."""
        return self.days is not None or self.mb is not None


RETENTION: Final = Section[RetentionSettings](name="retention", struct=RetentionSettings, default=RetentionSettings())
