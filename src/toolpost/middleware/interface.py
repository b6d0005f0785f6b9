"""The types that the chain is made of: a step takes a call and the rest of the chain, a check only the call."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from toolpost.base.ids import JsonObject
from toolpost.middleware.call import Call


class Outcome(msgspec.Struct, frozen=True):
    """A tool's result, validated and encoded once."""

    encoded: bytes
    content: Sequence[JsonObject] = ()
    passed: Mapping[str, msgspec.Raw] | None = None
    """The fields of an upstream server's own result, to be sent on unchanged; None for a function's."""
    is_error: bool = False
    """Whether the upstream server's result says `isError`."""
    facts: JsonObject | None = None
    """Sent beside the result, under our key in `_meta`."""


NextStep = Callable[[Call], Awaitable[Outcome]]
Step = Callable[[Call, NextStep], Awaitable[Outcome]]
Check = Callable[[Call], Awaitable[None] | None]
"""Raises to refuse a call. Returns an awaitable only if the check cannot be made at once, which is rare."""
