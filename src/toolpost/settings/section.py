"""A section of `toolpost.toml` that a part brings: its name, its type, its default, and its checks."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import msgspec

from toolpost.base.ids import JsonObject
from toolpost.base.redaction import forms_of, remember_secrets
from toolpost.contracts.errors import BadConfiguration
from toolpost.manifest import BadManifest, Part, bundled_parts, describe, installed_part, installed_parts, resolve
from toolpost.settings.effects import find_idle_settings
from toolpost.settings.locations import state_folder
from toolpost.settings.variables import expand_variables, fill_around, has_own_values, split_own_values

if TYPE_CHECKING:
    from toolpost.credentials.values import Template
    from toolpost.settings.model import Config, PluginSettings
    from toolpost.settings.servers import ServerSettings
    from toolpost.upstreams.spec import ServerSpec

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Section(Generic[Value]):
    """A section: `[name]`, or with `table` a table of sections, `[name.KEY]`.

    BUS = Section(name="bus", struct=BusSettings, default=BusSettings())
    lease_s = BUS.of(config).lease_s
    """

    name: str
    struct: type[msgspec.Struct]
    """What is in it. With `forbid_unknown_fields`, so that a mistyped key is an error; every field has a default."""
    default: Value
    table: Any = None
    """Of a table of sections, its type: `Annotated[dict[str, Struct], Meta(description="…")]`."""
    check_entry: Callable[[str, Any], None] | None = None
    """Raises BadConfiguration for an entry, which is given with its name, whose settings do not go together."""
    as_server: "Callable[[Any], ServerSettings] | None" = None
    """Of a table of what is reached over HTTP with credentials: the settings by which a server would be reached like that. Then
    `toolpost auth` and `toolpost login` know its entries by name, and `resolve` makes their specification."""
    secrets: str = ""
    """Of what is reached like that, the setting with credentials beside `headers`: texts by name, such as the keys of an API."""
    relocate: Callable[[Value, Path], Value] | None = None
    """Put what the section keeps on disk into this folder: the state of a project that has no `toolpost.toml`."""

    is_own: bool = False
    """Whether these are the own keys of the table of sections `[name]`, beside its entries: an entry cannot have their names."""

    needs: str = ""
    """Another section, without which this one has no effect."""

    @property
    def key(self) -> str:
        """What tells it from the other sections, also from the table beside whose entries it stands."""
        return f"{self.name} (all)" if self.is_own else self.name

    def of(self, config: "Config") -> Value:
        """Return the section as it is configured, or its default."""
        found: Value = config.parts.get(self.key, self.default)
        return found

    def put(self, config: "Config", value: Value) -> "Config":
        """Return the configuration with this section replaced."""
        return msgspec.structs.replace(config, parts={**config.parts, self.key: value})

    def settings_of(self, entry: Any) -> "ServerSettings":
        """Return the settings by which a server would be reached like an entry."""
        assert self.as_server is not None
        server = self.as_server(entry)
        if server.credentials is None and any(
            has_own_values(split_own_values(text)) for text in self._secrets_of(entry).values()
        ):
            return msgspec.structs.replace(server, credentials="caller")
        return server

    def check_server(self, name: str, entry: Any) -> None:
        """Raise `BadConfiguration` for an entry whose name, or settings as a server, could not be those of one."""
        from toolpost.settings.servers import check_server

        check_server(name, self.settings_of(entry), self.name)

    def resolve(self, config: "Config", name: str, entry: Any) -> "ServerSpec":
        """Return how an entry that is no server is reached, with the variables of its settings replaced.

        What has no process has no environment either: `env` and `own_env` are its `secrets`. Raises `BadConfiguration`, which
        names the setting and never a value.
        """
        from toolpost.settings.masking import find_secrets
        from toolpost.settings.servers import resolve_server
        from toolpost.upstreams.spec import ServerSpec

        project = Path(config.project).absolute()
        resolved = resolve_server(
            name,
            self.settings_of(entry),
            environment=os.environ,
            project=project,
            network=config.network,
            section=self.name,
        )
        secrets: dict[str, Template] = {}
        for key, text in self._secrets_of(entry).items():
            place = f"{self.name}.{name}.{self.secrets}.{key}"
            secrets[key] = fill_around(
                text, partial(expand_variables, environment=os.environ, project=project, place=place)
            )
        env = {key: "".join(map(str, pieces)) for key, pieces in secrets.items() if not has_own_values(pieces)}
        remember_secrets(form for secret in env.values() for form in forms_of(secret))
        own_env = {key: pieces for key, pieces in secrets.items() if key not in env}
        spec = ServerSpec(**vars(resolved), is_mcp=False, secrets=tuple(find_secrets(resolved)))
        return replace(spec, env=env, own_env=own_env)

    def _secrets_of(self, entry: Any) -> Mapping[str, str]:
        found: Mapping[str, str] = getattr(entry, self.secrets) if self.secrets else {}
        return found


class HasSections(Protocol):
    """As much of a part as the settings need."""

    @property
    def sections(self) -> tuple[Section[Any], ...]:
        """The sections that it brings."""
        ...


def bundled_sections() -> dict[str, Section[Any]]:
    """Return the sections of the parts that come with Toolpost, by name."""
    return sections_of(bundled_parts())


def known_sections(names: Mapping[str, Any]) -> dict[str, Section[Any]]:
    """Return the sections that may be in a file, by name.

    Installed parts are looked for only where a name is not one of ours: that takes as long as reading the file.
    """
    ours = bundled_sections()
    from toolpost.settings.model import Config

    kernel = {field.encode_name for field in msgspec.structs.fields(Config)}
    if not names.keys() - kernel - ours.keys():
        return ours
    return ours | installed_sections()


def installed_sections() -> dict[str, Section[Any]]:
    """Return the sections of installed parts. One that cannot be loaded makes its own section an error, and nothing else."""
    found: dict[str, Section[Any]] = {}
    for entry in installed_parts():
        try:
            found |= {section.key: section for section in read_sections(entry.load())}
        except Exception:  # noqa: BLE001, S112 (a part may raise anything)
            continue
    return found


def read_sections(part: Part) -> tuple[Section[Any], ...]:
    """Import the sections of an installed part. Raises `BadManifest` for one that is not called like the part.

    So the section of a part can be told from those of Toolpost and of any other part.
    """
    from toolpost.settings.model import Config

    sections = part.sections
    taken = {field.encode_name for field in msgspec.structs.fields(Config)} | {
        each.name for each in bundled_sections().values()
    }
    for section in sections:
        if not isinstance(section, Section):
            raise BadManifest(f"`settings` names {describe(section)}, not a `Section`")
        if section.name in taken:
            raise BadManifest(
                f"its section [{section.name}] is one of Toolpost: give part, entry point and section another name"
            )
        if section.name != part.name:
            raise BadManifest(f"its section is called [{section.name}]: it must be [{part.name}], like the part")
    return sections


@dataclass(frozen=True, kw_only=True)
class CredentialUser:
    """Something that is used with credentials: a server, or an entry of a part's section."""

    section: str
    settings: "ServerSettings"
    texts: tuple[str, ...]
    """All texts of its settings, any of which may refer to `${caller:KEY}`."""


SERVERS: Final = "servers"


def credential_users(config: "Config") -> dict[str, CredentialUser]:
    """Return everything that is used with credentials, by name; servers come first where a part has the same name."""
    sections = bundled_sections()
    if config.parts.keys() - sections.keys():
        sections |= installed_sections()
    found = {
        name: CredentialUser(
            section=section.name,
            settings=section.settings_of(entry),
            texts=tuple(_find_texts(msgspec.to_builtins(entry))),
        )
        for section in sections.values()
        if section.as_server is not None
        for name, entry in section.of(config).items()
    }
    return found | {
        name: CredentialUser(section=SERVERS, settings=server, texts=(*server.env.values(), *server.headers.values()))
        for name, server in config.servers.items()
    }


def _find_texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _find_texts(inner)


def find_idle_sections(config: "Config") -> dict[str, BadConfiguration]:
    """Return the sections and settings that are set and have no effect, each with an error that says what to add.

    A section has none if its part has plugins and `plugins.bundled` names none of them, unless the part works without, or if it
    needs another section. Where plugins are served alone, sections of others may be there.
    """
    idle: dict[str, BadConfiguration] = {}
    plugins = config.plugins
    for part in bundled_parts() if not plugins.chosen else ():
        is_loaded = not part.plugins or not set(part.plugins).isdisjoint(set(plugins.bundled) - {*plugins.disable})
        works_without = resolve(part.works_without_plugin)
        is_working = is_loaded or (works_without is not None and works_without(config))
        for section in part.sections:
            if not _is_set(section, config):
                continue
            if not is_working:
                idle[section.key] = _make_unloaded(section.name, part.plugins, plugins)
            elif section.needs and not config.parts.get(section.needs):
                idle[section.key] = BadConfiguration(
                    f"[{section.name}] has no effect without [{section.needs}.NAME].",
                    hint=f"add [{section.needs}.NAME], or remove [{section.name}]",
                )
        if (find_idle := resolve(part.find_idle)) is not None:
            idle.update(find_idle(config))
    return {**idle, **dict(find_idle_settings(config))}


def _make_unloaded(section: str, needed: Sequence[str], plugins: "PluginSettings") -> BadConfiguration:
    """Make the error for a section whose plugin is not named, or is disabled."""
    if needed[0] in plugins.bundled:
        return BadConfiguration(
            f"[{section}] has no effect: the plugin `{needed[0]}` is disabled.",
            hint=f"remove it from plugins.disable, or remove [{section}]",
        )
    named = ", ".join(f'"{name}"' for name in (*plugins.bundled, *needed))
    return BadConfiguration(
        f"[{section}] has no effect: the plugin `{needed[0]}` is not loaded.",
        hint=f"add `bundled = [{named}]` to [plugins], or remove [{section}]",
    )


def check_effects(config: "Config") -> None:
    """Raise `BadConfiguration` for the first section or setting that is set and has no effect."""
    for error in find_idle_sections(config).values():
        raise error


def _is_set(section: Section[Any], config: "Config") -> bool:
    """Whether a section is in the file, rather than moved to the folder of a project that has no file."""
    if section.key not in config.parts:
        return False
    if section.relocate is None:
        return True
    folder = state_folder(Path(config.project))
    return bool(config.parts[section.key] != section.relocate(section.default, folder))


def check_loadable(name: str) -> None:
    """Say why the section of an installed part is not known, where its part cannot be loaded."""
    entry = installed_part(name)
    if entry is None:
        return
    try:
        read_sections(entry.load())
    except Exception as error:
        why = str(error) if isinstance(error, BadManifest) else f"{type(error).__name__}: {error}"
        raise BadConfiguration(
            f"[{name}] belongs to the part `{name}`, which cannot be loaded: {why}.",
            hint="install what it lacks or correct the part, or remove the section",
        ) from error


def plain_values(config: "Config") -> JsonObject:
    """Return everything that is set, or is by default, as it could stand in a file; secrets included."""
    values: JsonObject = msgspec.to_builtins(config)
    del values["project"]
    sections = bundled_sections()
    if values.pop("parts").keys() - sections.keys():
        sections |= installed_sections()
    for section in sections.values():
        found = msgspec.to_builtins(section.of(config))
        values[section.name] = {**values.get(section.name, {}), **found} if section.is_own or section.table else found
    return values


def sections_of(parts: Iterable[HasSections]) -> dict[str, Section[Any]]:
    """Return the sections of these parts, by their keys."""
    return {section.key: section for part in parts for section in part.sections}
