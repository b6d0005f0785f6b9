"""The page of public Python names, made from `__all__` and the first line of each docstring."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from tests.doors import DOORS

MODULES = {
    "toolpost": "For authors of plugins and middleware, and applications that embed a gateway.",
    "toolpost.testing": "For tests of plugins and parts: a real client, without a network.",
    "toolpost.contracts": "Judge changes of tools in programs of your own.",
    "toolpost.contracts.lockfile": "Read locks in programs of your own.",
    "toolpost.parts": "For authors of parts.",
    "toolpost.parts.agents": "For authors of plugins that take part in conversations with agents.",
}
"""Everything that is public, and in one line for whom."""

GUIDES = {
    "toolpost": ("write-a-plugin", "write-middleware", "embed-toolpost"),
    "toolpost.testing": ("test-your-tools",),
    "toolpost.contracts": ("keep-contracts-stable",),
    "toolpost.contracts.lockfile": ("keep-contracts-stable",),
    "toolpost.parts": ("write-a-part",),
    "toolpost.parts.agents": ("write-a-plugin",),
}

TOLD = {
    "CallerId": "The type of a caller's id: text.",
    "ThreadId": "The type of a conversation's id: text.",
    "TurnEvent": "The type of an event of a turn: one of those that a listener receives.",
    "TurnId": "The type of a turn's id: text.",
    "Middleware": "The type of a middleware: an `async def` that takes a `CallRequest` and a `Next`, and returns a `CallResult`.",
    "Next": "The type of the function that continues a call, an argument of every middleware.",
    "ToolpostError": "The base of every error that callers receive, each with a public `code`.",
    "__version__": "The version of Toolpost.",
    "hookimpl": "Marks a function of a module as the implementation of a hook, for plugins that are no `Plugin`.",
    "hookspec": "Marks a function of a part as the declaration of a hook, for `HookSpecs`.",
    "RULES": "Every rule for changes.",
    "NAME_LIMIT": "The most characters of a tool's name.",
}
"""What has no docstring of its own, or one that stands for something else: an error's is its message."""


def api_page(command: str) -> str:
    """Return the page."""
    return "\n".join(_lines(command))


def _lines(command: str) -> Iterator[str]:
    yield f"# Python API\n\n<!-- Made by `{command}`; a test compares the two. -->\n"
    yield "The names in `__all__` of these modules are public. Everything else may change in any release"
    yield "([Versions and deprecations](versioning.md)). `help(name)` in Python prints the full documentation.\n"
    for module, purpose in MODULES.items():
        guides = ", ".join(f"[{_title(guide)}](../guides/{guide}.md)" for guide in GUIDES[module])
        yield f"## `{module}`\n\n{purpose} {guides}\n"
        yield "| name | meaning |\n|---|---|"
        found = importlib.import_module(module)
        for name in sorted(found.__all__, key=str.lower):
            yield f"| `{name}` | {_told(name, getattr(found, name))} |"
        yield ""
    yield "## Doors of the kernel\n"
    yield "For authors of parts: a part imports its own package, `toolpost`, and these names.\n"
    yield "| module | names |\n|---|---|"
    for door in DOORS:
        if door not in MODULES:
            names = sorted(importlib.import_module(door).__all__, key=str.lower)
            yield f"| `{door}` | {', '.join(f'`{name}`' for name in names)} |"
    yield ""


def _title(guide: str) -> str:
    return guide.replace("-", " ").capitalize()


def _told(name: str, value: Any) -> str:
    if name in TOLD:
        return TOLD[name]
    documented = inspect.getdoc(value) if inspect.isclass(value) or inspect.isroutine(value) else None
    assert documented, f"`{name}` is public, and has no docstring; a value that has none is in `TOLD`"
    return documented.splitlines()[0].replace("|", "\\|")
