"""The examples at the end of each command's help."""

from typing import Final

WIDTH: Final = 80
"""Columns of an ordinary terminal, which the help fits."""


def examples(*lines: tuple[str, str]) -> str:
    """Render (command, purpose) pairs; `\\b` keeps click from rewrapping them."""
    width = max(len(command) for command, _ in lines)
    if any(len(f"    {'':{width}}  # {purpose}") > WIDTH for _, purpose in lines):
        shown = [f"  # {purpose}\n  {command}" for command, purpose in lines]
    else:
        shown = [f"  {command.ljust(width)}  # {purpose}" for command, purpose in lines]
    return "\n".join(("\b", "Examples:", *shown))
