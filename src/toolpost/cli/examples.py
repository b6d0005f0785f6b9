"""The examples at the end of every help text."""


def examples(*lines: tuple[str, str]) -> str:
    """Lay out commands and what each is for; the mark in front keeps click from refilling them."""
    width = max(len(command) for command, _ in lines)
    if width > 56:
        shown = [f"  # {purpose}\n  {command}" for command, purpose in lines]
    else:
        shown = [f"  {command.ljust(width)}  # {purpose}" for command, purpose in lines]
    return "\n".join(("\b", "Examples:", *shown))
