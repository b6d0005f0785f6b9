"""`toolpost config`: the effective configuration, where it comes from, and its JSON Schema."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from toolpost.admin.toml_text import non_default_values, render_key, render_server, render_value
from toolpost.base import REDACTED, Json, JsonObject, conceal_known, is_secret_name
from toolpost.settings import CONFIG_NAME, Config, load_config
from toolpost.settings.callers import CallerSettings, IssuerSettings, OAuthSettings
from toolpost.settings.client_files import read_client_file
from toolpost.settings.loader import config_schema, file_type, is_client_file
from toolpost.settings.marks import entry_type, is_secret, own_type, section_type, types_of
from toolpost.settings.model import RerankerSettings
from toolpost.settings.secrets import redact_server
from toolpost.settings.section import find_idle_sections, plain_values
from toolpost.settings.variables import split_references
from toolpost.store.urls import shown_url
from toolpost.terminal import SuggestingGroup, config_option, examples, json_option, printable
from toolpost.terminal.tables import print_json, print_json_line

_PASSWORD: Final = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*(?=@)")


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        ("toolpost config show", "the effective settings"),
        ("toolpost config schema > toolpost.schema.json", "for completion in an editor"),
    ),
)
def config() -> None:
    """Show the configuration, or its JSON Schema."""


@config.command(
    epilog=examples(
        ("toolpost config schema", "print it"),
        ("toolpost config schema > toolpost.schema.json", "for completion in an editor"),
    )
)
@json_option("Print it on one line.")
def schema(*, as_json: bool) -> None:
    """Print the JSON Schema of toolpost.toml."""
    (print_json_line if as_json else print_json)(config_schema(installed=True))


@config.command(
    epilog=examples(
        ("toolpost config show", "the effective settings"),
        ("toolpost config show --config other.toml --json", "those of another file"),
    )
)
@config_option
@json_option("Print `{from, tokenFrom, settings}` on one line.")
def show(config_path: Path | None, *, as_json: bool) -> None:
    """Show the effective settings, and which file they come from.

    Printed as TOML, without secrets.
    """
    loaded = load_config(config_path)
    # Secrets are replaced; `${VAR}` references stay as written.
    settings = _redact(plain_values(msgspec.structs.replace(loaded, servers={})), file_type(loaded))
    assert isinstance(settings, dict)
    settings["servers"] = {name: non_default_values(redact_server(server)) for name, server in loaded.servers.items()}
    for error in find_idle_sections(loaded).values():
        click.echo(printable(f"{error.message} To change that: {error.hint}."), err=True)
    if as_json:
        source = _find_file(config_path)
        print_json_line(
            {"from": str(source) if source else None, "tokenFrom": _find_token_source(loaded), "settings": settings}
        )
        return
    for line in _render_toml(settings, config_path, loaded):
        click.echo(printable(line))


def _find_file(config_path: Path | None) -> Path | None:
    path = (config_path or Path(CONFIG_NAME)).absolute()
    return path if path.exists() else None


def _find_token_source(loaded: Config) -> str | None:
    if os.environ.get("TOOLPOST_TOKEN"):
        return "TOOLPOST_TOKEN"
    return "http.token" if loaded.http.token else None


def _render_toml(settings: JsonObject, config_path: Path | None, loaded: Config) -> Iterator[str]:
    source = _find_file(config_path)
    yield f"# from {source}" if source else f"# no {CONFIG_NAME} in {Path.cwd()}: these are the defaults"
    token = _find_token_source(loaded)
    if token or not loaded.requires_token:
        yield (
            f"# the token comes from {token}"
            if token
            else "# no token is set: only clients on this machine can connect"
        )
    if source is not None and is_client_file(source, source.read_text(encoding="utf-8")):
        for note in read_client_file(source, folder=Path.cwd()).notes:
            yield f"# note: {note}"
    usual = plain_values(Config())
    yield from _render_lines({name: value for name, value in settings.items() if not isinstance(value, dict)}, usual)
    for section, values in settings.items():
        if isinstance(values, dict) and section not in ("servers", "callers"):
            yield f"\n[{section}]"
            yield from _render_lines(
                {name: value for name, value in values.items() if not isinstance(value, dict)}, usual.get(section, {})
            )
    yield from _render_tables(settings)
    yield from _render_part_tables(settings, usual)
    for name, server in loaded.servers.items():
        yield f"\n{render_server(name, redact_server(server)).rstrip()}"


def _render_tables(settings: JsonObject) -> Iterator[str]:
    """Render nested tables, without defaults."""
    if (oauth := settings["http"]["oauth"]) is not None:
        yield "\n[http.oauth]"
        yield from _render_changed({**oauth, "issuers": {}}, OAuthSettings())
        for name, issuer in oauth["issuers"].items():
            yield f"\n[http.oauth.issuers.{render_value(name)}]"
            yield from _render_changed(issuer, IssuerSettings())
    reranker = settings["discovery"]["reranker"]
    if reranker["models"]:
        yield "\n[discovery.reranker]"
        yield from _render_changed(reranker, RerankerSettings())
    for name, caller in settings["callers"].items():
        yield f"\n[callers.{render_value(name) if '@' in name or '.' in name else name}]"
        yield from _render_changed(caller, CallerSettings())


def _render_part_tables(settings: JsonObject, usual: JsonObject) -> Iterator[str]:
    """Render what parts have in tables of their own: `[agents.NAME]`, `[router.weights]`."""
    for section, values in settings.items():
        if not isinstance(values, dict) or section in ("http", "discovery", "callers", "servers"):
            continue
        for name, table in values.items():
            if isinstance(table, dict) and table:
                key = render_key(name)
                yield f"\n[{section}.{key}]"
                set_values = {key: value for key, value in table.items() if value is not None}
                yield from _render_lines(set_values, usual.get(section, {}).get(name, {}))


def _render_changed(values: JsonObject, usual: msgspec.Struct) -> Iterator[str]:
    default = msgspec.to_builtins(usual)
    yield from _render_lines({name: value for name, value in values.items() if value != default[name]}, {})


def _render_lines(values: JsonObject, usual: JsonObject) -> Iterator[str]:
    for name, value in values.items():
        if value is None:
            yield f"# {name} is not set"
        else:
            remark = "" if value != usual.get(name) else "  # default"
            yield f"{name} = {render_value(value)}{remark}"


def _redact(value: Any, kind: Any, name: str = "") -> Json:
    """Replace what is secret by the mark of its setting, or by its name."""
    # The name of a file that contains a secret is not secret.
    if is_secret(kind) or (value is not None and is_secret_name(name) and not name.endswith(("_file", "_files"))):
        return _redact_literals(value)
    if isinstance(value, dict):
        entry = entry_type(kind)
        types = types_of(section_type(kind) or own_type(kind))
        return {
            key: _redact(held, types.get(key, entry), str(key) if entry is None else "") for key, held in value.items()
        }
    if isinstance(value, list):
        return [_redact(item, None, name) for item in value]
    return conceal_known(shown_url(_PASSWORD.sub(REDACTED, value))) if isinstance(value, str) else value


def _redact_literals(value: Any) -> Json:
    """Replace every text that is more than a reference such as `${VAR}`; a default in one is a literal, too."""
    if isinstance(value, dict):
        return {key: _redact_literals(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_redact_literals(held) for held in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    pieces = split_references(str(value))
    return REDACTED if any(isinstance(piece, str) or piece.is_escaped or piece.default for piece in pieces) else value
