"""What a step is: it takes a call and what comes next, and gives an outcome. A gate only looks at the call."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from toolpost.base.ids import JsonObject
from toolpost.middleware.call import Call


class Outcome(msgspec.Struct, frozen=True):
    """What a tool gave back, validated and encoded once."""

    encoded: bytes
    content: Sequence[JsonObject] = ()
    passed: Mapping[str, msgspec.Raw] | None = None
    """The fields of a server's own result, to be sent on as they came."""
    is_error: bool = False
    """Whether the server's own result says that the tool failed."""
    facts: JsonObject | None = None
    """What is told about the answer beside it, under our key in `_meta`."""


NextStep = Callable[[Call], Awaitable[Outcome]]
Step = Callable[[Call, NextStep], Awaitable[Outcome]]
Gate = Callable[[Call], Awaitable[None] | None]
"""Lets a call pass, or raises; one that has to wait for that, which is rare, returns what to wait for."""
