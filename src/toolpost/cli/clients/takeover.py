"""A client's server as one of ours: its references in our spelling, its secrets as references, its paths absolute."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from toolpost.settings.client_files import FoundServer
from toolpost.settings.secrets import rewritten
from toolpost.settings.servers import ServerSettings
from toolpost.settings.variables import Reference, pieces_of, variable_for


@dataclass
class Variables:
    """The variables that servers refer to once they are taken over: what for, and where their value was."""

    used_by: dict[str, list[str]] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """The files that hold a value which was replaced by a reference."""
    _secrets: dict[str, str] = field(default_factory=dict, repr=False)

    def name_for(self, secret: str, *candidates: str) -> str:
        """Choose a name for a secret: the first that does not stand for another one."""
        spare = (f"{candidates[-1]}_{number}" for number in range(2, 1_000))
        for name in (*candidates, *spare):
            if self._secrets.setdefault(name, secret) == secret:
                return name
        raise AssertionError(candidates)

    def count(self, server: str, settings: ServerSettings) -> None:
        """Note what a server refers to without a default."""
        for key, text in _texts(settings):
            for piece in pieces_of(text):
                if isinstance(piece, Reference) and piece.variable and piece.default is None:
                    users = self.used_by.setdefault(piece.variable, [])
                    if (place := f"servers.{server}.{key}") not in users:
                        users.append(place)

    def is_set(self, name: str) -> bool:
        """Say whether the environment has it now."""
        return name in os.environ


def taken_over(found: FoundServer, *, folder: Path, variables: Variables, keep_secrets: bool) -> ServerSettings:
    """Return the settings to write for a server, into a `toolpost.toml` in this folder."""
    settings = _with_env_file(found, variables, keep_secrets=keep_secrets)
    is_elsewhere = found.project != folder
    if is_elsewhere and settings.command is not None:
        settings = msgspec.structs.replace(settings, cwd=_anchored(settings.cwd))
    settings = _in_our_spelling(settings, found.project if is_elsewhere else None)
    if keep_secrets:
        return settings

    def reference(key: str, name: str, secret: str) -> str:
        chosen = variables.name_for(secret, *_names(found.name, key, name))
        variables.origins[chosen] = str(found.path)
        return f"${{{chosen}}}"

    return rewritten(settings, reference)


def _with_env_file(found: FoundServer, variables: Variables, *, keep_secrets: bool) -> ServerSettings:
    """Add what an env file holds: its lines are taken for secrets, as most are."""
    settings = found.settings
    env: dict[str, str] = {}
    for name, value in (found.env_file_values() if settings.enabled else {}).items():
        if name in settings.env:
            continue
        if keep_secrets:
            env[name] = value.replace("${", "$${")
        else:
            chosen = variables.name_for(value, variable_for(name), variable_for(found.name, name))
            variables.origins[chosen] = str(found.env_file)
            env[name] = f"${{{chosen}}}"
    return msgspec.structs.replace(settings, env=env | settings.env)


def _anchored(cwd: str | None) -> str:
    """Write a folder so that it does not depend on where `toolpost.toml` is."""
    if cwd is None:
        return "${workspaceFolder}"
    return cwd if Path(cwd).is_absolute() or cwd.startswith(("$", "~")) else f"${{workspaceFolder}}/{cwd}"


def _names(server: str, key: str, name: str) -> list[str]:
    if key.startswith("headers."):
        return [variable_for(server, "token" if name.lower() == "authorization" else name)]
    own = variable_for(server, name)
    # What is a variable's name already stays it: `env.GITHUB_TOKEN`, docker's `-e GITHUB_TOKEN=…`.
    return [name, own] if re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) else [own]


def _in_our_spelling(settings: ServerSettings, project: Path | None) -> ServerSettings:
    """Write `${input:ID}` and `${env:VAR}` as `${VAR}`, and the folder of another project as its path."""

    def spell(text: str) -> str:
        return "".join(piece if isinstance(piece, str) else _spelled(piece, project) for piece in pieces_of(text))

    return _mapped(settings, spell)


def _spelled(reference: Reference, project: Path | None) -> str:
    if reference.is_escaped:
        return reference.text
    if reference.input_id is not None:
        return f"${{{variable_for(reference.input_id)}}}"
    if project is not None and reference.body == "workspaceFolder":
        return str(project)
    return f"${{{reference.body.removeprefix('env:')}}}"


def _mapped(settings: ServerSettings, change: Callable[[str], str]) -> ServerSettings:
    return msgspec.structs.replace(
        settings,
        command=settings.command and change(settings.command),
        args=[change(word) for word in settings.args],
        env={name: change(value) for name, value in settings.env.items()},
        cwd=settings.cwd and change(settings.cwd),
        url=settings.url and change(settings.url),
        headers={name: change(value) for name, value in settings.headers.items()},
    )


def _texts(settings: ServerSettings) -> Iterator[tuple[str, str]]:
    for key in ("command", "cwd", "url"):
        if text := getattr(settings, key):
            yield key, text
    yield from ((f"args[{number}]", word) for number, word in enumerate(settings.args))
    yield from ((f"env.{name}", value) for name, value in settings.env.items())
    yield from ((f"headers.{name}", value) for name, value in settings.headers.items())
