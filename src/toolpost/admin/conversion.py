"""Converts a client's server to `[servers.NAME]`: `${VAR}` references, secrets as references, absolute paths."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from toolpost.settings.client_files import FoundServer
from toolpost.settings.secrets import rewrite_secrets
from toolpost.settings.servers import ServerSettings
from toolpost.settings.variables import Reference, make_variable_name, split_references


@dataclass
class Variables:
    """The environment variables that imported servers refer to: which settings use them, and where their value was."""

    used_by: dict[str, list[str]] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """Where the value of a replaced secret is: the file, by variable."""
    _secrets: dict[str, str] = field(default_factory=dict, repr=False)

    def name_for(self, secret: str, *candidates: str) -> str:
        """Return the first candidate that does not stand for another secret, else the last one with a number."""
        spare = (f"{candidates[-1]}_{number}" for number in range(2, 1_000))
        for name in (*candidates, *spare):
            if self._secrets.setdefault(name, secret) == secret:
                return name
        raise AssertionError(candidates)

    def count(self, server: str, settings: ServerSettings) -> None:
        """Record the variables that a server refers to without a default."""
        for key, text in _iter_texts(settings):
            for piece in split_references(text):
                if isinstance(piece, Reference) and piece.variable and piece.default is None:
                    users = self.used_by.setdefault(piece.variable, [])
                    if (place := f"servers.{server}.{key}") not in users:
                        users.append(place)

    def is_set(self, name: str) -> bool:
        return name in os.environ


def convert_server(found: FoundServer, *, folder: Path, variables: Variables, keep_secrets: bool) -> ServerSettings:
    """Return the settings to write into a `toolpost.toml` in `folder`."""
    settings = _add_env_file(found, variables, keep_secrets=keep_secrets)
    is_elsewhere = found.project != folder
    if is_elsewhere and settings.command is not None:
        settings = msgspec.structs.replace(settings, cwd=_anchor(settings.cwd))
    settings = _normalize_references(settings, found.project if is_elsewhere else None)
    if keep_secrets:
        return settings

    def reference(key: str, name: str, secret: str) -> str:
        chosen = variables.name_for(secret, *_candidate_names(found.name, key, name))
        variables.origins[chosen] = str(found.path)
        return f"${{{chosen}}}"

    return rewrite_secrets(settings, reference)


def _add_env_file(found: FoundServer, variables: Variables, *, keep_secrets: bool) -> ServerSettings:
    """Add the variables of the env file; each counts as a secret, as most are."""
    settings = found.settings
    env: dict[str, str] = {}
    for name, value in (found.env_file_values() if settings.enabled else {}).items():
        if name in settings.env:
            continue
        if keep_secrets:
            env[name] = value.replace("${", "$${")
        else:
            chosen = variables.name_for(value, make_variable_name(name), make_variable_name(found.name, name))
            variables.origins[chosen] = str(found.env_file)
            env[name] = f"${{{chosen}}}"
    return msgspec.structs.replace(settings, env=env | settings.env)


def _anchor(cwd: str | None) -> str:
    """Make a working directory independent of where `toolpost.toml` is."""
    if cwd is None:
        return "${workspaceFolder}"
    return cwd if Path(cwd).is_absolute() or cwd.startswith(("$", "~")) else f"${{workspaceFolder}}/{cwd}"


def _candidate_names(server: str, key: str, name: str) -> list[str]:
    if key.startswith("headers."):
        return [make_variable_name(server, "token" if name.lower() == "authorization" else name)]
    own = make_variable_name(server, name)
    # A name that is a variable already is kept: `env.GITHUB_TOKEN`, docker's `-e GITHUB_TOKEN=…`.
    return [name, own] if re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) else [own]


def _normalize_references(settings: ServerSettings, project: Path | None) -> ServerSettings:
    """Rewrite `${input:ID}` and `${env:VAR}` as `${VAR}`, and another project's folder as its path."""

    def spell(text: str) -> str:
        return "".join(
            piece if isinstance(piece, str) else _render_reference(piece, project) for piece in split_references(text)
        )

    return msgspec.structs.replace(
        settings,
        command=settings.command and spell(settings.command),
        args=[spell(word) for word in settings.args],
        env={name: spell(value) for name, value in settings.env.items()},
        cwd=settings.cwd and spell(settings.cwd),
        url=settings.url and spell(settings.url),
        headers={name: spell(value) for name, value in settings.headers.items()},
    )


def _render_reference(reference: Reference, project: Path | None) -> str:
    if reference.is_escaped:
        return reference.text
    if reference.input_id is not None:
        return f"${{{make_variable_name(reference.input_id)}}}"
    if project is not None and reference.body == "workspaceFolder":
        return str(project)
    return f"${{{reference.body.removeprefix('env:')}}}"


def _iter_texts(settings: ServerSettings) -> Iterator[tuple[str, str]]:
    for key in ("command", "cwd", "url"):
        if text := getattr(settings, key):
            yield key, text
    yield from ((f"args[{number}]", word) for number, word in enumerate(settings.args))
    yield from ((f"env.{name}", value) for name, value in settings.env.items())
    yield from ((f"headers.{name}", value) for name, value in settings.headers.items())
