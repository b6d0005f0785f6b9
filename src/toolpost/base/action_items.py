"""Something that waits for a person, as the console's overview shows it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from toolpost.base.caller import Principal


@dataclass(frozen=True, kw_only=True)
class ActionItem:
    """Something that waits for a person: a fact, its cause, since when, and where to deal with it."""

    kind: str = ""
    """Its sort, such as `failures` or `approval`: pages show items of one kind alike."""
    title: str
    text: str = ""
    """The cause, as far as it is known."""
    since: float | None = None
    """When it began, in seconds since 1970; None if that is not known."""
    action: str = ""
    """What a person does about it at `path`, such as `Vote`; empty if there is only something to read."""
    path: str | None = None
    """A page of the gateway, such as `/approvals`."""
    command: str | None = None
    """What to type in a terminal instead."""
    lines: Sequence[str] = ()
    """What was last printed, where that explains it."""
    is_urgent: bool = False
    """Whether calls fail until it is dealt with. Urgent items come first."""


@dataclass(frozen=True)
class ActionItems:
    """A part's items that wait for a person."""

    find: Callable[[Principal], Awaitable[Sequence[ActionItem]]]
    """Returns the items that a caller may know of."""
