"""The examples at the end of each command's help."""


def examples(*lines: tuple[str, str]) -> str:
    """Render (command, purpose) pairs; `\\b` keeps click from rewrapping them."""
    width = max(len(command) for command, _ in lines)
    if width > 56:
        shown = [f"  # {purpose}\n  {command}" for command, purpose in lines]
    else:
        shown = [f"  {command.ljust(width)}  # {purpose}" for command, purpose in lines]
    return "\n".join(("\b", "Examples:", *shown))
