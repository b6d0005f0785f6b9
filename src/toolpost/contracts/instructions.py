"""The instructions of a server, as a definition: they are locked, compared and scanned as the descriptions of tools are.

Their name has a colon, which no tool's name has. Other servers' names are not spoken of as its own: see `findings`.
"""

from typing import Final

from toolpost.base.ids import ToolName
from toolpost.contracts.compatibility.definition import Definition

_SUFFIX: Final = ":instructions"


def name_instructions(server: str) -> ToolName:
    """Return the name under which a server's instructions are locked, such as `weather:instructions`."""
    return ToolName(f"{server}{_SUFFIX}")


def find_server(name: str) -> str | None:
    """Return the server whose instructions have this name; None for the name of a tool."""
    return name.removesuffix(_SUFFIX) if name.endswith(_SUFFIX) else None


def define_instructions(server: str, text: str) -> Definition:
    return Definition(name=name_instructions(server), description=text)
