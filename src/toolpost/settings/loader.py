"""Loads the configuration from `toolpost.toml`, or from an MCP client's file."""

import logging
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from toolpost.base.events import event
from toolpost.base.ids import JsonObject
from toolpost.base.nearest import correct_spelling, nearest_name
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings.audit import ExportSettings, check_export
from toolpost.settings.callers import CallerSettings, check_caller, check_oauth, check_patterns
from toolpost.settings.client_files import read_client_text
from toolpost.settings.locations import state_folder
from toolpost.settings.marks import entry_type, own_type, section_type, types_of
from toolpost.settings.mistakes import WrongValue, explain_wrong_value, find_line, find_repair
from toolpost.settings.model import CONFIG_NAME, DEFAULT_PLUGINS, Config, PluginSettings, check_bundled, check_http
from toolpost.settings.removed import find_replacement
from toolpost.settings.section import (
    HasSections,
    Section,
    bundled_sections,
    check_loadable,
    installed_sections,
    known_sections,
    sections_of,
)
from toolpost.settings.servers import ServerSettings, check_server
from toolpost.settings.variables import expand_variables, fill_texts

SCHEMA_ID: Final = "https://toolpost.dev/schemas/toolpost.schema.json"

_TABLES: Final = ("servers", "callers", "export")
_NOT_SET: Final = ("parts", "project")
"""What the configuration knows besides the settings of the kernel in its file."""

_log = logging.getLogger("toolpost.settings")

_Entry = TypeVar("_Entry", bound=msgspec.Struct)


_REFERENCE: Final = r"\$\{[^}]+\}"


def load_config(path: Path | None = None, *, folder: Path | None = None, parts: Sequence[HasSections] = ()) -> Config:
    """Load the given file, else `toolpost.toml` in the folder, else the defaults.

    `parts` may have sections in it, in addition to bundled and installed parts.
    """
    folder = folder or Path.cwd()
    if path is None:
        path = folder / CONFIG_NAME
        if not path.exists():
            return with_state_folder(Config(project=str(folder), plugins=PluginSettings(bundled=list(DEFAULT_PLUGINS))))
    text = _read_text(path)
    if is_client_file(path, text):
        return _load_client_file(text, path, folder)
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # `TOMLDecodeError` is a ValueError; a number that is too long and nesting without end are others.
        raise BadConfiguration(f"{path} is not TOML: {error}.", hint=find_repair(str(error), text)) from error
    try:
        return _convert_config(values, path, parts)
    except WrongValue as error:
        line = find_line(text, error.key)
        where = f"{path}, line {line}" if line is not None else str(path)
        raise BadConfiguration(f"{where}: {error.message.removeprefix(f'{path}: ')}", hint=error.hint) from error


def convert_settings(values: Mapping[str, Any], *, place: str, parts: Sequence[HasSections] = ()) -> Config:
    """Read settings that a program gives, shaped as in `toolpost.toml`; `place` names them in errors.

    Relative paths start from the current folder.
    """
    return _convert_config(values, Path(place), parts)


def with_state_folder(config: Config) -> Config:
    """Move store and index of a project without `toolpost.toml` out of its folder."""
    folder = str(state_folder(Path(config.project)))
    # What is filled in here is no reference, whatever a folder is called.
    store = msgspec.structs.replace(config.store, url=f"sqlite:{folder}/toolpost.db".replace("${", "$${"))
    config = msgspec.structs.replace(config, store=store)
    for section in bundled_sections().values():
        if section.relocate is not None:
            config = section.put(config, section.relocate(section.of(config), Path(folder)))
    return config


def file_type(config: Config) -> type[msgspec.Struct]:
    """Return the type of the file that has these settings, with the sections of its parts."""
    return _file_type(known_sections(config.parts))


def is_client_file(path: Path, text: str) -> bool:
    """Whether this is a client's JSON file: TOML never starts with a brace or a slash."""
    return path.suffix.lower() in (".json", ".jsonc") or text.lstrip("\ufeff \t\r\n").startswith(("{", "/"))


def config_schema(*, installed: bool = False) -> JsonObject:
    sections = bundled_sections() | (installed_sections() if installed else {})
    own = {section.name: section.struct for section in sections.values() if section.is_own}
    (schema, *_), definitions = msgspec.json.schema_components(
        [_file_type(sections), *own.values()], ref_template="#/$defs/{name}"
    )
    for name, struct in own.items():
        definitions["Config"]["properties"][name]["properties"] = definitions.pop(struct.__name__)["properties"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": CONFIG_NAME,
        **_admit_references(schema),
        "$defs": _admit_references(definitions),
    }


def _admit_references(schema: Any) -> Any:
    """Let a reference such as `${VAR}` stand where fixed words are expected: it is replaced before they are checked."""
    if isinstance(schema, list):
        return [_admit_references(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    admitted = {key: _admit_references(value) for key, value in schema.items()}
    if isinstance(words := schema.get("enum"), list) and any(isinstance(word, str) for word in words):
        del admitted["enum"]
        admitted["anyOf"] = [{"enum": words}, {"type": "string", "pattern": _REFERENCE}]
    return admitted


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadConfiguration(
            f"Configuration file not found: {path}.", hint="check the path given with --config"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"Cannot read {path}: {error}.") from error


def _load_client_file(text: str, path: Path, folder: Path) -> Config:
    found = read_client_text(text, path, folder=folder)
    if not found.has_place:
        raise BadConfiguration(
            f"{path} contains no MCP servers.", hint="they are expected under `mcpServers`, `servers` or `mcp.servers`"
        )
    for note in found.notes:
        event(_log, logging.INFO, "client file", file=str(path), note=note)
    servers = {server.name: server.complete_settings() for server in found.servers}
    return with_state_folder(Config(servers=servers, project=str(found.project)))


def _convert_config(values: Mapping[str, Any], path: Path, parts: Sequence[HasSections] = ()) -> Config:
    sections = known_sections(values) | sections_of(parts)
    whole = _file_type(sections)
    for name in values.keys() - {field.name for field in msgspec.structs.fields(whole)}:
        with _prefix_errors(path):
            check_loadable(name)
    values = _fill_in(values, whole, path)
    _refuse_unknown_keys(values, whole, path, "")
    for table in _TABLES:
        if not isinstance(values.get(table, {}), Mapping):
            raise BadConfiguration(f"{path}: {table} must be a table: write [{table}.NAME].")
    # One by one: msgspec does not say which entry of a table is wrong.
    servers = {name: _convert_server(name, value, path) for name, value in values.get("servers", {}).items()}
    callers = {}
    for name, value in values.get("callers", {}).items():
        callers[name] = _convert_entry(value, CallerSettings, path, f"callers.{name}")
        with _prefix_errors(path):
            check_caller(name, callers[name])
    exports = {}
    for name, value in values.get("export", {}).items():
        exports[name] = _convert_entry(value, ExportSettings, path, f"export.{name}")
        with _prefix_errors(path):
            check_export(name, exports[name])
    of_parts = _convert_tables(values, sections, whole, path)
    rest = {key: value for key, value in values.items() if key not in _TABLES and key not in of_parts}
    try:
        read: Any = msgspec.convert(rest, whole)
    except msgspec.ValidationError as error:
        raise _in_file(path, explain_wrong_value(error, rest, "")) from error
    of_parts |= {name: getattr(read, name) for name, section in sections.items() if name in rest and not section.is_own}
    kernel = {
        field.name: getattr(read, field.name) for field in msgspec.structs.fields(Config) if field.name not in _NOT_SET
    }
    config = Config(**kernel, parts=of_parts)
    with _prefix_errors(path):
        check_http(config.http)
        check_bundled(config.plugins.bundled, "plugins.bundled")
    _check_access(config, callers, path)
    return msgspec.structs.replace(config, servers=servers, callers=callers, export=exports, project=str(path.parent))


def _convert_tables(
    values: Mapping[str, Any], sections: Mapping[str, Section[Any]], whole: type[msgspec.Struct], path: Path
) -> dict[str, Any]:
    """Convert the tables of sections of parts, and the own keys that stand beside their entries."""
    converted: dict[str, Any] = {}
    for section in sections.values():
        if section.name not in values or not (section.table is not None or section.is_own):
            continue
        table = values[section.name]
        if not isinstance(table, Mapping):
            raise BadConfiguration(f"{path}: {section.name} is a table: write [{section.name}.NAME].")
        own = types_of(own_type(types_of(whole)[section.name]))
        held = {key: value for key, value in table.items() if (key in own) is section.is_own}
        if not section.is_own:
            converted[section.key] = _convert_table(held, section, path)
        elif held:
            converted[section.key] = _convert_entry(held, section.struct, path, section.name)
    return converted


def _fill_in(values: Mapping[str, Any], whole: type[msgspec.Struct], path: Path) -> Mapping[str, Any]:
    """Replace the references in all texts but those of late fields. Files are relative to the project."""
    folder = path.parent.absolute()

    def fill(text: str, place: str) -> str:
        return expand_variables(text, environment=os.environ, project=folder, place=place)

    with _prefix_errors(path):
        filled: Mapping[str, Any] = fill_texts(values, whole, fill)
    return filled


def _file_type(sections: Mapping[str, Section[Any]]) -> type[msgspec.Struct]:
    """Make the type of a whole file: the settings of the kernel, and a field for each section of a part."""
    fields: list[Any] = []
    for each in msgspec.structs.fields(Config):
        if each.name not in _NOT_SET:
            default = {"default": each.default, "default_factory": each.default_factory}
            fields.append((each.name, each.type, msgspec.field(**default)))
    own = {section.name: section.struct for section in sections.values() if section.is_own}
    for section in sections.values():
        if section.table is not None:
            kind = Annotated[section.table, msgspec.Meta(extra={"own": own.get(section.name)})]  # type: ignore[name-defined]
            fields.append((section.name, kind, msgspec.field(default_factory=dict)))
        elif not section.is_own:
            fields.append((section.name, section.struct, section.default))
    whole = msgspec.defstruct("Config", fields, frozen=True, forbid_unknown_fields=True, kw_only=True)
    whole.__doc__ = Config.__doc__
    return whole


def _check_access(config: Config, callers: Mapping[str, CallerSettings], path: Path) -> None:
    with _prefix_errors(path):
        for place, endpoint in (("http", config.http), ("stdio", config.stdio)):
            check_patterns(endpoint.tags, endpoint.tools, place)
        if config.http.oauth is not None:
            check_oauth(config.http.oauth, config.http.resource, callers)
        elif names := sorted(name for name, caller in callers.items() if caller.has_claims and caller.issuer is None):
            raise BadConfiguration(
                f"callers.{names[0]} is identified by OAuth claims, but [http.oauth] is not set.",
                hint="add [http.oauth.issuers.NAME] with issuer",
            )


def _convert_table(values: Any, table: Section[Any], path: Path) -> dict[str, Any]:
    """Convert a part's table of sections, entry by entry."""
    entries = {}
    for name, value in values.items():
        entries[name] = _convert_entry(value, table.struct, path, f"{table.name}.{name}")
        if table.check_entry is not None:
            with _prefix_errors(path):
                table.check_entry(name, entries[name])
    return entries


@contextmanager
def _prefix_errors(path: Path) -> Iterator[None]:
    """Add the file's name to each `BadConfiguration`."""
    try:
        yield
    except BadConfiguration as error:
        raise BadConfiguration(f"{path}: {error.message}", hint=error.hint) from error


def _convert_entry(value: Any, kind: type[_Entry], path: Path, place: str) -> _Entry:
    """Convert one `[table.NAME]`; errors name the table and the key."""
    if not isinstance(value, Mapping):
        raise BadConfiguration(f"{path}: {place} must be a table: write [{place}].")
    _refuse_unknown_keys(value, kind, path, f"{place}.")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _in_file(path, explain_wrong_value(error, value, place)) from error


def _in_file(path: Path, error: WrongValue) -> WrongValue:
    named = WrongValue(f"{path}: {error.message}", hint=error.hint)
    named.key = error.key
    return named


def _convert_server(name: str, value: Any, path: Path) -> ServerSettings:
    place = f"servers.{name}"
    for key in ("env", "headers") if isinstance(value, Mapping) else ():
        texts = value.get(key, {})
        for entry, text in texts.items() if isinstance(texts, Mapping) else ():
            # Numbers are the usual mistake here, and msgspec would not name the entry.
            if not isinstance(text, str):
                raise BadConfiguration(f"{path}: {place}.{key}.{entry} must be a string.", hint="put it in quotes")
    server = _convert_entry(value, ServerSettings, path, place)
    with _prefix_errors(path):
        check_server(name, server)
    return server


def _refuse_unknown_keys(values: Mapping[str, Any], kind: type[msgspec.Struct], path: Path, place: str) -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in values.items():
        if key not in fields:
            for removed in (
                *(f"{place}{key}.{inner}" for inner in (value if isinstance(value, Mapping) else ())),
                place + key,
            ):
                if (replacement := find_replacement(removed)) is not None:
                    raise BadConfiguration(f"{path}: `{removed}` is gone: {replacement}.")
            if not place and isinstance(value, Mapping) and correct_spelling(key, [*fields]) is None:
                # The name of a part may be anything: no guess is better than a wrong one.
                raise BadConfiguration(
                    f"{path}: no installed part has the section `{key}`.",
                    hint="install the package that brings it, or remove the section",
                )
            if near := _find_table(key, fields) or nearest_name(key, fields):
                hint = f"did you mean `{place}{near}`?"
            else:
                hint = f"known settings: {', '.join(sorted(fields))}"
            raise BadConfiguration(f"{path}: unknown setting `{place}{key}`.", hint=hint)
        choices = _choices_of(fields[key])
        if choices and isinstance(value, str) and value not in choices:
            near = nearest_name(value, choices)
            hint = f"did you mean `{near}`?" if near else f"choose one of: {', '.join(choices)}"
            raise BadConfiguration(f"{path}: {place}{key}: there is no `{value[:100]}` to choose.", hint=hint)
        inner = section_type(fields[key])
        if isinstance(value, Mapping) and inner is not None:
            _refuse_unknown_keys(value, inner, path, f"{place}{key}.")
        if isinstance(value, Mapping) and (entry := entry_type(fields[key])) is not None:
            _refuse_unknown_entries(value, entry, own_type(fields[key]), path, f"{place}{key}.")


def _find_table(key: str, fields: Mapping[str, Any]) -> str | None:
    """Return the one setting of this name that is in a table below, as `table.name`."""
    tables = ((name, section_type(kind)) for name, kind in fields.items())
    found = [f"{name}.{key}" for name, table in tables if table is not None and key in types_of(table)]
    return found[0] if len(found) == 1 else None


def _refuse_unknown_entries(
    values: Mapping[str, Any], entry: type[msgspec.Struct], own: type[msgspec.Struct] | None, path: Path, place: str
) -> None:
    """Refuse unknown keys in the entries of a table, and entries with names that are taken by keys of the table itself."""
    table, own_types = place.removesuffix("."), types_of(own)
    for name, value in values.items():
        if not isinstance(value, Mapping):
            if own is not None and name not in own_types:
                _refuse_unknown_keys({name: value}, own, path, place)
        elif name in own_types:
            raise BadConfiguration(
                f"{path}: `{name}` is a setting of [{table}], so nothing in [{table}.NAME] can have this name.",
                hint=f"choose another name, or write `{name} = …` in [{table}]",
            )
        else:
            _refuse_unknown_keys(value, entry, path, f"{place}{name}.")


def _choices_of(kind: Any) -> list[str]:
    """Return the words that a setting may have; none for one that takes other values than a few words."""
    if get_origin(kind) is Literal:
        return [word for word in get_args(kind) if isinstance(word, str)]
    if get_origin(kind) is Annotated:
        return _choices_of(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        parts = [_choices_of(part) for part in get_args(kind) if part is not NoneType]
        return [word for part in parts for word in part] if all(parts) else []
    return []
