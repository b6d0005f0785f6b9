"""`[apis.NAME]`: APIs that an OpenAPI document describes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from toolpost.contracts import BadConfiguration
from toolpost.parts import Section
from toolpost.settings import ADVANCED, LATE, SECRET, AuthSettings, Config, NetworkSettings, ServerSettings
from toolpost.upstreams import ServerSpec

RESPONSE_LIMIT_BYTES: Final = 8 * 1024 * 1024
"""The longest answer that is read."""
BUDGET_TOKENS: Final = 25_000
"""An API is worth a warning if its tools take about more tokens to list."""
NAME_LIMIT: Final = 32
ApiName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*$", max_length=NAME_LIMIT)]


class ApiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An HTTP API whose operations are tools."""

    document: Annotated[
        str, Meta(description="its OpenAPI document (3.0, 3.1, or Swagger 2.0): a file of the project, or a URL")
    ] = ""
    base: Annotated[
        str, Meta(description="URL that the paths of its operations are below; nothing else is requested", extra=LATE)
    ] = ""
    headers: Annotated[dict[str, str], Meta(description="HTTP headers of every request to it", extra=SECRET)] = {}
    security: Annotated[
        dict[str, str],
        Meta(
            description="keys for the document's security schemes, by their names: an API key, a bearer token, or"
            " `user:password`; sent where the operation asks for them",
            extra=SECRET,
        ),
    ] = {}
    credentials: Annotated[
        Literal["shared", "caller"] | None,
        Meta(
            description="whose credentials it is used with: `shared` by all callers, or each `caller`'s own; if not set,"
            " the caller's where a value refers to `${caller:KEY}`",
            extra=ADVANCED,
        ),
    ] = None
    auth: Annotated[
        AuthSettings | None, Meta(description="how the gateway gets access tokens for it (OAuth)", extra=SECRET)
    ] = None
    network: Annotated[
        NetworkSettings, Meta(description="certificates and proxy for this API, over those of `[network]`", extra=LATE)
    ] = NetworkSettings()
    allow: Annotated[
        list[str],
        Meta(
            description="operations to serve: `tag:NAME`, `/path`, `METHOD /path`, or the name of a tool; `*` is anything",
            extra_json_schema={"default": ["*"]},
        ),
    ] = msgspec.field(default_factory=lambda: ["*"])
    deny: Annotated[list[str], Meta(description="operations to leave out, even if allowed")] = []
    results: Annotated[
        Literal["enforce", "off"],
        Meta(
            description="`enforce` lists what operations answer and holds the API to it; `off` does neither, which more than"
            " halves the listing",
            extra=ADVANCED,
        ),
    ] = "enforce"
    contracts: Annotated[
        Literal["observe", "enforce"] | None,
        Meta(description="overrides `contracts` for this API: `observe` or `enforce`", extra=ADVANCED),
    ] = None
    description: Annotated[
        str, Meta(description="its purpose: words by which a search finds its tools", extra=ADVANCED)
    ] = ""
    timeout_s: Annotated[
        Annotated[float, Meta(gt=0, le=86_400)] | None,
        Meta(description="time limit of its tools, instead of `limits.timeout_s`"),
    ] = None
    enabled: Annotated[bool, Meta(description="false turns it off")] = True

    def __repr__(self) -> str:
        """Leave out values that may be secrets."""
        return f"ApiSettings(document={self.document!r}, …)"


def is_url(document: str) -> bool:
    """Whether a document is fetched, and not read from a file."""
    return urlsplit(document).scheme.lower() in ("http", "https")


def check_api(name: str, api: ApiSettings) -> None:
    """Raise `BadConfiguration` for a name that cannot be part of a tool's name, and for settings that are missing."""
    place = f"apis.{name}"
    if len(name) > NAME_LIMIT:
        raise BadConfiguration(f"apis.`{name}`: an API's name has up to {NAME_LIMIT} characters.", hint="shorten it")
    if not api.document:
        raise BadConfiguration(f"{place}.document is missing.", hint="set it to a file, or to a URL")
    if not api.base:
        raise BadConfiguration(
            f"{place}.base is missing.",
            hint="set it to the URL of the API: a URL in the document is not trusted with credentials;"
            " `toolpost import openapi` writes both",
        )
    with _call_it_base(place):
        APIS.check_server(name, api)
    _, _, after = api.base.partition("://")
    if any(mark in after for mark in "?#@"):
        raise BadConfiguration(
            f"{place}.base must have no query, and no user or password.", hint="set keys in `security` or `headers`"
        )


@contextmanager
def _call_it_base(place: str) -> Iterator[None]:
    """Have errors of the settings that an API has in common with servers name `base`, which is `url` there."""
    try:
        yield
    except BadConfiguration as error:
        raise BadConfiguration(error.message.replace(f"{place}.url", f"{place}.base"), hint=error.hint) from error


def as_server(api: ApiSettings) -> ServerSettings:
    """Return what is the same for an API and a server at a URL: how it is reached, with which credentials, and held to what."""
    return ServerSettings(
        url=api.base,
        headers=api.headers,
        credentials=api.credentials,
        auth=api.auth,
        contracts=api.contracts,
        network=api.network,
    )


APIS: Final[Section[dict[str, ApiSettings]]] = Section(
    name="apis",
    struct=ApiSettings,
    table=Annotated[dict[ApiName, ApiSettings], Meta(description="APIs whose operations are tools, by name")],
    default={},
    check_entry=check_api,
    as_server=as_server,
    secrets="security",
)


def enabled_apis(config: Config) -> dict[str, ApiSettings]:
    """Return the APIs that are not turned off."""
    return {name: api for name, api in APIS.of(config).items() if api.enabled}


def resolve_api(config: Config, name: str, api: ApiSettings) -> ServerSpec:
    """Return how an API is reached, with the variables of its settings replaced; the keys of its security schemes are in `env`.

    Raises `BadConfiguration`, which names the setting and never a value.
    """
    with _call_it_base(f"apis.{name}"):
        return APIS.resolve(config, name, api)
