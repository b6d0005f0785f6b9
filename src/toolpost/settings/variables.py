"""`${VAR}` and its relatives, filled in once. What is filled in is not looked at again.

${VAR}                   from the environment; a missing one is an error
${VAR:-default}          the default if VAR is not set or empty
${env:VAR}               the same as ${VAR}, as VS Code and Cursor write it
${workspaceFolder}       the project folder; also ${workspaceFolderBasename}, ${userHome}, ${pathSeparator}, ${/}
${input:ID}              an error: nobody can be asked here
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
"""How deep defaults may hold references."""

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
    """A `${…}` in a text, read but not filled in."""

    body: str
    is_escaped: bool = False

    @property
    def input_id(self) -> str | None:
        """The id of what VS Code would ask for."""
        asked = _INPUT.fullmatch(self.body)
        return asked[1] if asked else None

    @property
    def variable(self) -> str | None:
        """The name of the environment variable, if it is one."""
        if self.is_escaped or self.body in _FIXED:
            return None
        named = _VARIABLE.fullmatch(self.body)
        return named[1] if named else None

    @property
    def default(self) -> str | None:
        """What stands in for a variable that is not set."""
        named = _VARIABLE.fullmatch(self.body)
        return named[2] if named else None

    @property
    def text(self) -> str:
        """The reference as it was written."""
        return f"{'$$' if self.is_escaped else '$'}{{{self.body}}}"


def pieces_of(text: str) -> Iterator[str | Reference]:
    """Take a text apart into what is literal and what refers to something."""
    at = 0
    while (start := text.find("${", at)) >= 0 and (end := _closing(text, start + 2)) >= 0:
        is_escaped = start > at and text[start - 1] == "$"
        if literal := text[at : start - is_escaped]:
            yield literal
        yield Reference(body=text[start + 2 : end], is_escaped=is_escaped)
        at = end + 1
    if at < len(text):
        yield text[at:]


def _closing(text: str, at: int) -> int:
    """Find the brace that ends a reference, past those within its default."""
    depth = 1
    for found in re.compile(r"\$\{|\}").finditer(text, at):
        depth += 1 if found[0] == "${" else -1
        if depth == 0:
            return found.start()
    return -1


def expand_variables(text: str, *, environment: Mapping[str, str], project: Path, place: str, depth: int = 0) -> str:
    """Fill in the references of a text; `place` is what an error names, never the text."""
    if depth > _DEPTH:
        raise BadConfiguration(f"{place}: defaults hold defaults more than {_DEPTH} deep.")
    whole = ""
    for piece in pieces_of(text):
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
                f"{place} needs the environment variable {piece.variable}, which is not set.",
                hint=f"set it before Toolpost starts, or write a default: ${{{piece.variable}:-…}}",
            )
    return whole


def _name_of(reference: Reference, place: str) -> str:
    if reference.input_id is not None:
        name = variable_for(reference.input_id)
        raise BadConfiguration(
            f"{place} asks its user for `{reference.input_id}`, and here nobody can be asked.",
            hint=f"put it into the environment, export {name}=…, and write ${{{name}}} there; `toolpost import` does so",
        )
    if (name := reference.variable or "") == "":
        shown = f"`{reference.text}`" if _PLAIN.fullmatch(reference.body) else "one of its `${…}`"
        raise BadConfiguration(
            f"{place}: {shown} is not understood.",
            hint="known are ${VAR}, ${VAR:-default}, ${env:VAR} and ${workspaceFolder}; $${ stands for ${",
        )
    return name


def variable_for(*words: str) -> str:
    """Make a name for a variable: `github-token` becomes GITHUB_TOKEN."""
    name = re.sub(r"[^A-Z0-9]+", "_", "_".join(words).upper()).strip("_")
    return name if name[:1].isalpha() else f"VAR_{name}".rstrip("_")
