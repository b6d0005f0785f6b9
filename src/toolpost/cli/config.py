"""`toolpost config`: what is set, where it comes from, and what may be set."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.base.redaction import REDACTED, is_secret_name
from toolpost.cli.clients.server_toml import server_table, set_values, toml_value
from toolpost.cli.examples import examples
from toolpost.cli.group import SuggestingGroup
from toolpost.cli.options import config_option, json_option
from toolpost.cli.show import print_json, print_json_line
from toolpost.cli.terminal import printable
from toolpost.settings import (
    CONFIG_NAME,
    CallerSettings,
    Config,
    OAuthSettings,
    RerankerSettings,
    config_schema,
    load_config,
    read_client_file,
)
from toolpost.settings.loader import is_client_file
from toolpost.settings.secrets import without_secrets
from toolpost.settings.section import plain_values
from toolpost.store.urls import shown_url

_PASSWORD: Final = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*(?=@)")


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        ("toolpost config show", "what is set here"),
        ("toolpost config schema > toolpost.schema.json", "for an editor that completes"),
    ),
)
def config() -> None:
    """Show the configuration, or what may be set."""


@config.command(
    epilog=examples(
        ("toolpost config schema", "read it"),
        ("toolpost config schema > toolpost.schema.json", "for an editor that completes"),
    )
)
@json_option("Print it on one line.")
def schema(*, as_json: bool) -> None:
    """Print the JSON Schema of toolpost.toml."""
    (print_json_line if as_json else print_json)(config_schema(installed=True))


@config.command(
    epilog=examples(
        ("toolpost config show", "what is set here"),
        ("toolpost config show --config other.toml --json", "what another file sets, for other programs"),
    )
)
@config_option
@json_option("Print `{from, tokenFrom, settings}` on one line.")
def show(config_path: Path | None, *, as_json: bool) -> None:
    """Show what is set, and where it comes from.

    What is shown is the effective configuration, as TOML. Secrets are left out.
    """
    loaded = load_config(config_path)
    settings = _shown(loaded)
    if as_json:
        source = _source(config_path)
        print_json_line(
            {"from": str(source) if source else None, "tokenFrom": _token_source(loaded), "settings": settings}
        )
        return
    for line in _as_toml(settings, config_path, loaded):
        click.echo(printable(line))


def _shown(loaded: Config) -> JsonObject:
    """Return the settings without secrets; references to variables are shown as they are written."""
    rest = _without_secrets(plain_values(msgspec.structs.replace(loaded, servers={})))
    assert isinstance(rest, dict)
    return rest | {"servers": {name: set_values(without_secrets(server)) for name, server in loaded.servers.items()}}


def _source(config_path: Path | None) -> Path | None:
    path = (config_path or Path(CONFIG_NAME)).absolute()
    return path if path.exists() else None


def _token_source(loaded: Config) -> str | None:
    if os.environ.get("TOOLPOST_TOKEN"):
        return "TOOLPOST_TOKEN"
    return "http.token_file" if loaded.http.token_file else None


def _as_toml(settings: JsonObject, config_path: Path | None, loaded: Config) -> Iterator[str]:
    source = _source(config_path)
    yield f"# from {source}" if source else f"# there is no {CONFIG_NAME} in {Path.cwd()}: these are the defaults"
    token = _token_source(loaded)
    if token or not loaded.requires_token:
        yield f"# the token comes from {token}" if token else "# there is no token: only this machine may connect"
    for note in _notes(source):
        yield f"# note: {note}"
    usual = plain_values(Config())
    yield from _lines({name: value for name, value in settings.items() if not isinstance(value, dict)}, usual)
    for section, values in settings.items():
        if isinstance(values, dict) and section not in ("servers", "callers"):
            yield f"\n[{section}]"
            yield from _lines(
                {name: value for name, value in values.items() if not isinstance(value, dict)}, usual.get(section, {})
            )
    yield from _tables(settings)
    for name, server in loaded.servers.items():
        yield f"\n{server_table(name, without_secrets(server)).rstrip()}"


def _tables(settings: JsonObject) -> Iterator[str]:
    """Write the tables within tables, without what is default."""
    if (oauth := settings["http"]["oauth"]) is not None:
        yield "\n[http.oauth]"
        yield from _set_lines(oauth, OAuthSettings())
    if (reranker := settings["discovery"]["reranker"])["url"] is not None:
        yield "\n[discovery.reranker]"
        yield from _set_lines(reranker, RerankerSettings())
    for name, caller in settings["callers"].items():
        yield f"\n[callers.{toml_value(name) if '@' in name or '.' in name else name}]"
        yield from _set_lines(caller, CallerSettings())


def _set_lines(values: JsonObject, usual: msgspec.Struct) -> Iterator[str]:
    default = msgspec.to_builtins(usual)
    yield from _lines({name: value for name, value in values.items() if value != default[name]}, {})


def _notes(source: Path | None) -> tuple[str, ...]:
    """Say what was strange about a client's file."""
    if source is None or not is_client_file(source, source.read_text(encoding="utf-8")):
        return ()
    return read_client_file(source, folder=Path.cwd()).notes


def _lines(values: JsonObject, usual: JsonObject) -> Iterator[str]:
    for name, value in values.items():
        if value is None:
            yield f"# {name} is not set"
        else:
            remark = "" if value != usual.get(name) else "  # default"
            yield f"{name} = {toml_value(value)}{remark}"


def _without_secrets(value: Any, name: str = "") -> Json:
    if isinstance(value, dict):
        return {key: _without_secrets(held, str(key)) for key, held in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item, name) for item in value]
    # A file or a variable that holds a secret may be named.
    if value is not None and is_secret_name(name) and not name.endswith(("_file", "_env")):
        return REDACTED
    return shown_url(_PASSWORD.sub(REDACTED, value)) if isinstance(value, str) else value
