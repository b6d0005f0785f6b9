"""What a person may set: `toolpost.toml`, read once, frozen. An unknown key is an error that names the nearest one."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from toolpost.contracts.errors import BadConfiguration
from toolpost.contracts.ids import JsonObject
from toolpost.contracts.nearest import nearest_name

CONFIG_NAME: Final = "toolpost.toml"
SCHEMA_ID: Final = "https://toolpost.dev/schemas/toolpost.schema.json"

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The HTTP endpoint."""

    listen: Annotated[str, Meta(description="host:port; off localhost a token is mandatory")] = "127.0.0.1:8420"
    token_file: Annotated[str | None, Meta(description="file that holds the token; TOOLPOST_TOKEN wins")] = None
    allowed_hosts: Annotated[list[str], Meta(description="further names that this server goes by")] = []
    allowed_origins: Annotated[list[str], Meta(description="origins whose pages may call tools")] = []
    body_limit_bytes: Annotated[int, Meta(ge=1024, description="largest request body")] = 4 * 1024 * 1024


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where things are remembered."""

    url: Annotated[str, Meta(description="sqlite:PATH, relative to the project")] = "sqlite:.toolpost/toolpost.db"


class LimitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bounds on time and number."""

    timeout_s: Annotated[Seconds, Meta(description="time limit of a tool that names none")] = 60.0
    calls: Annotated[Count, Meta(description="calls in flight at once")] = 1024
    waiting: Annotated[Count, Meta(description="calls that may wait for one lock")] = 64
    threads: Annotated[Count, Meta(description="synchronous tools that may run at once")] = 40
    grace_s: Annotated[Seconds, Meta(description="how long calls may go on at shutdown")] = 5.0
    page_size: Annotated[Count, Meta(description="tools on one page of tools/list")] = 1000


class PluginSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which plugins are loaded."""

    load: Annotated[list[str], Meta(description="package.module:attribute, beside those that are installed")] = []
    disable: Annotated[list[str], Meta(description="names of plugins to leave out")] = []
    installed: Annotated[bool, Meta(description="load plugins announced by installed packages")] = True


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that may be set; every part has a default that works."""

    http: HttpSettings = HttpSettings()
    store: StoreSettings = StoreSettings()
    limits: LimitSettings = LimitSettings()
    plugins: PluginSettings = PluginSettings()
    project: Annotated[str, Meta(description="the folder that relative paths start from")] = "."

    @property
    def store_url(self) -> str:
        """The store's URL with its path made absolute."""
        scheme, _, path = self.store.url.partition(":")
        if scheme != "sqlite" or path == ":memory:":
            return self.store.url
        return f"sqlite:{Path(self.project) / path}"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        return parse_address(self.http.listen)

    def token(self) -> str | None:
        """Read the token from the environment or its file; None if there is none."""
        if token := os.environ.get("TOOLPOST_TOKEN"):
            return token
        if self.http.token_file is None:
            return None
        path = Path(self.project) / self.http.token_file
        try:
            token = path.read_text().strip()
        except OSError as error:
            raise BadConfiguration(f"http.token_file: cannot read {path}: {error.strerror}.") from error
        if not token:
            raise BadConfiguration(f"http.token_file: {path} is empty.")
        return token


def load_config(path: Path | None = None, *, folder: Path | None = None) -> Config:
    """Read the named file, else `toolpost.toml` in the folder, else take the defaults."""
    folder = folder or Path.cwd()
    if path is None:
        path = folder / CONFIG_NAME
        if not path.exists():
            return Config(project=str(folder))
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadConfiguration(f"There is no file {path}.", hint="check --config") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"Cannot read {path}: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise BadConfiguration(f"{path} is not TOML: {error}.") from error
    return _converted(values, path)


def config_schema() -> JsonObject:
    """Return the JSON Schema of `toolpost.toml`, for editors and for the docs."""
    (schema,), definitions = msgspec.json.schema_components([Config], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": CONFIG_NAME,
        **schema,
        "$defs": definitions,
    }


def parse_address(text: str) -> tuple[str, int]:
    """Read `host:port`, `[::1]:port` or a bare port."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise BadConfiguration(f"`{text}` is not an address.", hint="write host:port, as in 127.0.0.1:8420")
    return host.strip("[]") or "127.0.0.1", int(port)


def _converted(values: Mapping[str, Any], path: Path) -> Config:
    _refuse_unknown_keys(values, Config, path, "")
    try:
        config = msgspec.convert(values, Config)
    except msgspec.ValidationError as error:
        raise BadConfiguration(f"{path}: {error}.") from error
    parse_address(config.http.listen)
    project = path.parent / config.project
    return msgspec.structs.replace(config, project=str(project))


def _refuse_unknown_keys(values: Mapping[str, Any], kind: type[msgspec.Struct], path: Path, place: str) -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in values.items():
        if key not in fields:
            near = nearest_name(key, fields)
            hint = f"did you mean `{place}{near}`?" if near else f"known here: {', '.join(sorted(fields))}"
            raise BadConfiguration(f"{path}: there is no setting `{place}{key}`.", hint=hint)
        inner = fields[key]
        if isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            _refuse_unknown_keys(value, inner, path, f"{place}{key}.")
