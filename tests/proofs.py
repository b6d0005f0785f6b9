"""Which tests prove that an argument of a bundled tool matters; `tests/test_bundled_tools.py` looks for those that none does.

A claim is checked by breaking it: `tests/ignoring.py` runs the test again with a gateway that ignores the argument, and the test
must fail.
"""

from collections.abc import Callable
from typing import TypeVar

Test = TypeVar("Test")

PROVEN: dict[str, set[str]] = {}
"""Arguments by tool; a tool is here once it is called through a client."""


def proves(tool: str, *arguments: str) -> Callable[[Test], Test]:
    """Say that a test calls a bundled tool through a client, and fails if one of these arguments is ignored."""

    def note(test: Test) -> Test:
        PROVEN.setdefault(tool, set()).update(arguments)
        vars(test).setdefault("claims", []).extend((tool, argument) for argument in arguments or [""])
        return test

    return note
