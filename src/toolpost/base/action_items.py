"""Something that waits for a person, as the console's overview shows it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from toolpost.base.caller import Principal


@dataclass(frozen=True, kw_only=True)
class ActionItem:
    """Something that waits for a person: a fact, and where to deal with it."""

    title: str
    text: str = ""
    path: str | None = None
    """A page of the gateway, such as `/approvals`."""
    command: str | None = None
    """What to type in a terminal instead."""
    lines: Sequence[str] = ()
    """What was last printed, where that explains it."""
    is_urgent: bool = False


@dataclass(frozen=True)
class ActionItems:
    """A part's items that wait for a person."""

    find: Callable[[Principal], Awaitable[Sequence[ActionItem]]]
    """Returns the items that a caller may know of."""
