"""`[export.NAME]`: where the audit is passed on to. `[retention]`: how much of it is kept."""

import base64
import binascii
import os
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from toolpost.base.redaction import remember_secrets
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings.section import Section

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
    secret_env: Annotated[
        str | None, Meta(description="environment variable with the secret that signs a webhook's requests")
    ] = None
    headers_env: Annotated[
        str | None,
        Meta(description="environment variable with headers of requests, as in `Authorization=Bearer x,X-Team=y`"),
    ] = None
    begin: Annotated[
        Literal["first", "now"], Meta(description="with which entry a new destination begins: the first, or the next")
    ] = "first"
    batch: Annotated[int, Meta(ge=1, le=5_000, description="entries in one request, at most")] = 500

    def secret(self, name: str) -> bytes:
        """Read the key of the webhook's signatures; raises `BadConfiguration` if it is not set.

        `whsec_` and base64 is how Standard Webhooks writes a secret, and how its libraries read one; any other is taken as it is.
        """
        found = os.environ.get(self.secret_env or "", "").strip()
        if len(found) < 16:
            raise BadConfiguration(
                f"export.{name}.secret_env: {self.secret_env or 'no variable'} has no secret of at least 16 characters.",
                hint="a receiver cannot tell our requests from others without one: set it, as in `openssl rand -hex 32`",
            )
        remember_secrets([found])
        if not found.startswith(_STANDARD):
            return found.encode()
        try:
            return base64.b64decode(found.removeprefix(_STANDARD), validate=True)
        except binascii.Error as error:
            raise BadConfiguration(
                f"export.{name}.secret_env: {self.secret_env} begins with {_STANDARD}, and what follows is not base64.",
                hint=f"as in `echo {_STANDARD}$(openssl rand -base64 32)`",
            ) from error

    def headers(self, name: str) -> dict[str, str]:
        """Read the headers of requests; raises `BadConfiguration` if the variable is not set."""
        if self.headers_env is None:
            return {}
        text = os.environ.get(self.headers_env, "")
        pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
        if not pairs or not all(key.strip() and equals for key, equals, _ in pairs):
            raise BadConfiguration(
                f"export.{name}.headers_env: {self.headers_env} has no headers.",
                hint="write them as in `Authorization=Bearer x,X-Team=y`",
            )
        remember_secrets([value.strip() for _, _, value in pairs if len(value.strip()) >= 8])
        return {key.strip(): value.strip() for key, _, value in pairs}


def _check(name: str, export: ExportSettings) -> None:
    place = f"export.{name}"
    if export.kind == "file":
        if not export.path or export.url:
            raise BadConfiguration(f"{place}: a file needs `path`, and has no `url`.", hint='path = "audit.jsonl"')
        if export.secret_env is not None or export.headers_env is not None:
            raise BadConfiguration(
                f"{place}: `secret_env` and `headers_env` are for requests, and not for a file.", hint="remove them"
            )
        return
    url = urlsplit(export.url)
    if url.scheme not in ("http", "https") or not url.hostname or export.path:
        raise BadConfiguration(
            f"{place}: {export.kind} needs `url`, and has no `path`.", hint='url = "https://collector.example/v1/logs"'
        )
    if export.kind == "otlp" and export.secret_env is not None:
        raise BadConfiguration(
            f"{place}: `secret_env` signs the requests of a webhook alone.",
            hint="authenticate with headers_env, or remove it",
        )
    if export.kind == "webhook" and export.secret_env is None:
        raise BadConfiguration(
            f"{place}: a webhook needs `secret_env`.",
            hint="name an environment variable with a secret: requests are signed with it",
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
        Meta(description="remove the oldest entries beyond so many megabytes, as JSON"),
    ] = None
    archive: Annotated[
        str | None,
        Meta(description="folder for what is removed, relative to the project; without one it is not kept"),
    ] = None

    @property
    def is_limited(self) -> bool:
        """Whether anything is removed."""
        return self.days is not None or self.mb is not None


RETENTION: Final = Section[RetentionSettings](name="retention", struct=RetentionSettings, default=RetentionSettings())
