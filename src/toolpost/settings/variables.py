"""`${VAR}` and similar references in settings. Replaced once: a value that contains `${` is not expanded again.

${VAR}                   from the environment; an error if not set
${VAR:-default}          the default if VAR is not set or empty
${env:VAR}               the same as ${VAR}, as VS Code and Cursor write it
${workspaceFolder}       the project folder; also ${workspaceFolderBasename}, ${userHome}, ${pathSeparator}, ${/}
${input:ID}              an error: VS Code would prompt for it, a gateway cannot
$${VAR}                  the text ${VAR}
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolpost.contracts.errors import BadConfiguration

_DEPTH: Final = 8
"""How deep defaults may be nested."""

_VARIABLE: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*(?:\(x86\))?)(?::-(.*))?", re.DOTALL)
_INPUT: Final = re.compile(r"input:(.+)", re.DOTALL)
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


def _name_of(reference: Reference, place: str) -> str:
    if reference.input_id is not None:
        name = make_variable_name(reference.input_id)
        raise BadConfiguration(
            f"{place} uses `${{input:{reference.input_id}}}`, which only VS Code can prompt for.",
            hint=f"set the environment variable {name} and write ${{{name}}} instead; `toolpost import` does so",
        )
    if (name := reference.variable or "") == "":
        shown = f"`{reference.text}`" if _PLAIN.fullmatch(reference.body) else "one of its `${…}`"
        raise BadConfiguration(
            f"{place}: {shown} is not a known reference.",
            hint="write ${VAR}, ${VAR:-default}, ${env:VAR} or ${workspaceFolder}; $${ is a literal ${",
        )
    return name


def make_variable_name(*words: str) -> str:
    """Make a variable's name: `github-token` becomes GITHUB_TOKEN."""
    name = re.sub(r"[^A-Z0-9]+", "_", "_".join(words).upper()).strip("_")
    return name if name[:1].isalpha() else f"VAR_{name}".rstrip("_")
