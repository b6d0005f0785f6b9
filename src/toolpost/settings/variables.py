"""`${VAR}` and similar references in settings. Replaced once: a value that contains `${` is not expanded again.

Any text of `toolpost.toml` may have them. They are replaced when the file is read (`fill_texts`), except in fields that are
marked as `LATE` or `SECRET`: there a missing variable matters only to what uses the field (`read_secret`, `resolve_server`).

${VAR}                   from the environment; an error if not set
${VAR:-default}          the default if VAR is not set or empty
${env:VAR}               the same as ${VAR}, as VS Code and Cursor write it
${workspaceFolder}       the project folder; also ${workspaceFolderBasename}, ${userHome}, ${pathSeparator}, ${/}
${file:PATH}             the text of a file, without surrounding whitespace; relative to the project, `~` is the home folder
${keychain:SERVICE/NAME} an entry of the keychain
${caller:KEY}            the caller's own value, in headers and environment variables of servers (`split_own_values`)
${input:ID}              an error: VS Code would prompt for it, a gateway cannot
$${VAR}                  the text ${VAR}
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from toolpost.base.redaction import forms_of, remember_secrets
from toolpost.contracts.errors import BadConfiguration, OperatorError
from toolpost.credentials.keychain import read_keychain
from toolpost.credentials.values import CallerValue, Template
from toolpost.settings.marks import entry_type, is_late, own_type, section_type, types_of

_DEPTH: Final = 8
"""How deep defaults may be nested."""

_VARIABLE: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*(?:\(x86\))?)(?::-(.*))?", re.DOTALL)
_INPUT: Final = re.compile(r"input:(.+)", re.DOTALL)
_FILE: Final = re.compile(r"file:(.+)", re.DOTALL)
_KEYCHAIN: Final = re.compile(r"keychain:([^/]+)/(.+)", re.DOTALL)
_CALLER: Final = re.compile(r"caller:([A-Za-z_][A-Za-z0-9_.-]*)")
_PLAIN: Final = re.compile(r"[\w.:/-]{1,80}")

_FIXED: Final[dict[str, Callable[[Path], str]]] = {
    "workspaceFolder": str,
    "workspaceFolderBasename": lambda project: project.name,
    "userHome": lambda _: str(Path.home()),
    "pathSeparator": lambda _: os.sep,
    "/": lambda _: os.sep,
}


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A parsed `${…}`."""

    body: str
    is_escaped: bool = False

    @property
    def input_id(self) -> str | None:
        """The id of an `${input:ID}`, else None."""
        found = _INPUT.fullmatch(self.body)
        return found[1] if found else None

    @property
    def own_name(self) -> str | None:
        """The name of the caller's value in a `${caller:KEY}`, else None."""
        found = None if self.is_escaped else _CALLER.fullmatch(self.body)
        return found[1] if found else None

    @property
    def file(self) -> str | None:
        """The path of a `${file:PATH}`, else None."""
        found = None if self.is_escaped else _FILE.fullmatch(self.body)
        return found[1] if found else None

    @property
    def variable(self) -> str | None:
        """The name of the environment variable; None for other references."""
        if self.is_escaped or self.body in _FIXED:
            return None
        named = _VARIABLE.fullmatch(self.body)
        return named[1] if named else None

    @property
    def default(self) -> str | None:
        """The text after `:-`, None without one."""
        named = _VARIABLE.fullmatch(self.body)
        return named[2] if named else None

    @property
    def text(self) -> str:
        """The reference as written."""
        return f"{'$$' if self.is_escaped else '$'}{{{self.body}}}"


def split_references(text: str) -> Iterator[str | Reference]:
    """Split a text into literals and references."""
    at = 0
    while (start := text.find("${", at)) >= 0 and (end := _find_closing(text, start + 2)) >= 0:
        is_escaped = start > at and text[start - 1] == "$"
        if literal := text[at : start - is_escaped]:
            yield literal
        yield Reference(body=text[start + 2 : end], is_escaped=is_escaped)
        at = end + 1
    if at < len(text):
        yield text[at:]


def _find_closing(text: str, at: int) -> int:
    """Find the brace that ends a reference, past those in its default; -1 if there is none."""
    depth = 1
    for found in re.compile(r"\$\{|\}").finditer(text, at):
        depth += 1 if found[0] == "${" else -1
        if depth == 0:
            return found.start()
    return -1


def expand_variables(text: str, *, environment: Mapping[str, str], project: Path, place: str, depth: int = 0) -> str:
    """Replace the references of a text. Errors name `place`, never the text, which may be secret."""
    if depth > _DEPTH:
        raise BadConfiguration(f"{place}: `${{VAR:-default}}` is nested more than {_DEPTH} deep.")
    whole = ""
    for piece in split_references(text):
        if isinstance(piece, str):
            whole += piece
        elif piece.is_escaped:
            whole += f"${{{piece.body}}}"
        elif fixed := _FIXED.get(piece.body):
            whole += fixed(project)
        elif (secret := _read_secret(piece, project, place)) is not None:
            # A secret whatever the setting is called: logs and errors are shown without it.
            remember_secrets(forms_of(secret))
            whole += secret
        elif (value := environment.get(_name_of(piece, place))) or (value is not None and piece.default is None):
            whole += value
        elif piece.default is not None:
            whole += expand_variables(
                piece.default, environment=environment, project=project, place=place, depth=depth + 1
            )
        else:
            raise BadConfiguration(
                f"{place}: the environment variable {piece.variable} is not set.",
                hint=f"set it before starting Toolpost, or write a default: ${{{piece.variable}:-…}}",
            )
    return whole


def _read_secret(reference: Reference, project: Path, place: str) -> str | None:
    """Return what a `${file:…}` or `${keychain:…}` refers to, None for any other reference; raises `BadConfiguration`."""
    if (file := reference.file) is not None:
        return _read_file(file, project, place)
    if (entry := _KEYCHAIN.fullmatch(reference.body)) is None:
        return None
    try:
        found = read_keychain(entry[1], entry[2])
    except OperatorError as error:
        raise BadConfiguration(f"{place}: {error.message}", hint=error.hint) from error
    if found is None:
        raise BadConfiguration(
            f"{place}: the keychain has no entry {entry[1]}/{entry[2]}.", hint=f"keyring set {entry[1]} {entry[2]}"
        )
    return found


def _read_file(name: str, project: Path, place: str) -> str:
    try:
        return (project / Path(name).expanduser()).read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadConfiguration(
            f"{place}: cannot read the file {name}: {reason}.", hint="check its path and rights"
        ) from error


def fill_texts(values: Any, kind: type[msgspec.Struct], fill: Callable[[str, str], str], place: str = "") -> Any:
    """Replace the references in the texts of a table of settings, but for late fields; `fill` is given a text and its place."""
    if not isinstance(values, Mapping):
        return values
    types = types_of(kind)
    return {
        key: _fill_text(value, types[key], fill, f"{place}{key}") if key in types and not is_late(types[key]) else value
        for key, value in values.items()
    }


def _fill_text(value: Any, kind: Any, fill: Callable[[str, str], str], place: str) -> Any:
    if isinstance(value, str):
        return fill(value, place) if "${" in value else value
    if isinstance(value, list):
        return [_fill_text(item, None, fill, f"{place}[{number}]") for number, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    if (section := section_type(kind)) is not None:
        return fill_texts(value, section, fill, f"{place}.")
    if (entry := entry_type(kind)) is not None:
        own = types_of(own_type(kind))
        return {
            name: _fill_text(held, own[name], fill, f"{place}.{name}")
            if name in own
            else fill_texts(held, entry, fill, f"{place}.{name}.")
            for name, held in value.items()
        }
    return {key: _fill_text(held, None, fill, f"{place}.{key}") for key, held in value.items()}


def read_secret(text: str, *, project: Path, place: str) -> str:
    """Replace the references of a secret text; raises `BadConfiguration` where something is missing, or nothing is left."""
    secret = expand_variables(text, environment=os.environ, project=project.absolute(), place=place).strip()
    if not secret:
        raise BadConfiguration(
            f"{place} is empty.", hint="set it, or the variable or file in it, before starting Toolpost"
        )
    return secret


def has_references(text: str) -> bool:
    """Whether anything in a text is replaced."""
    return any(not isinstance(piece, str) for piece in split_references(text))


def depends_on_user(text: str | None) -> bool:
    """Whether a text may be another one for each user of this machine: by their environment, home folder or keychain."""
    return any(
        isinstance(piece, Reference) and not piece.is_escaped and (piece.file is None or piece.file.startswith("~"))
        for piece in split_references(text or "")
    )


def files_of(text: str | None) -> list[str]:
    """Return the paths of the files whose text is in this one."""
    return [piece.file for piece in split_references(text or "") if isinstance(piece, Reference) and piece.file]


def split_own_values(text: str) -> list[str | CallerValue]:
    """Split a text at the references to the caller's values; the other references are left in the texts between them."""
    pieces: list[str | CallerValue] = []
    for piece in split_references(text):
        own = piece.own_name if isinstance(piece, Reference) else None
        pieces.append(CallerValue(own) if own is not None else piece if isinstance(piece, str) else piece.text)
    return pieces


def fill_around(text: str, fill: Callable[[str], str]) -> Template:
    """Have `fill` replace the references of a text, but for those to the caller's values."""
    return tuple(piece if isinstance(piece, CallerValue) else fill(piece) for piece in split_own_values(text))


def has_own_values(pieces: Iterable[str | CallerValue]) -> bool:
    """Whether a split text refers to values of the caller."""
    return any(isinstance(piece, CallerValue) for piece in pieces)


def _name_of(reference: Reference, place: str) -> str:
    if reference.input_id is not None:
        name = make_variable_name(reference.input_id)
        raise BadConfiguration(
            f"{place} uses `${{input:{reference.input_id}}}`, which only VS Code can prompt for.",
            hint=f"set the environment variable {name} and write ${{{name}}} instead; `toolpost import` does so",
        )
    if reference.own_name is not None:
        raise BadConfiguration(
            f"{place}: `{reference.text}` can be used in headers and in env only.",
            hint="a program's arguments and URLs are shown to others; pass the value in a variable or header",
        )
    if (name := reference.variable or "") == "":
        shown = f"`{reference.text}`" if _PLAIN.fullmatch(reference.body) else "one of its `${…}`"
        raise BadConfiguration(
            f"{place}: {shown} is not a known reference.",
            hint="write ${VAR}, ${VAR:-default}, ${env:VAR}, ${file:PATH}, ${keychain:SERVICE/NAME}, ${caller:KEY} or"
            " ${workspaceFolder}; $${ is a literal ${",
        )
    return name


def make_variable_name(*words: str) -> str:
    """Make a variable's name: `github-token` becomes GITHUB_TOKEN."""
    name = re.sub(r"[^A-Z0-9]+", "_", "_".join(words).upper()).strip("_")
    return name if name[:1].isalpha() else f"VAR_{name}".rstrip("_")
