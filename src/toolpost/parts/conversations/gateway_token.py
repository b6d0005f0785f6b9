"""A way in to the gateway, for as long as a session lasts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from toolpost.base.caller import Caller, Door, Scope


class DoorKeeper(Protocol):
    """Whoever lets agents in to the gateway."""

    def lend(self, caller: Caller, scopes: Sequence[Scope]) -> Door:
        """Make a way in, for one session."""
        ...

    def take_back(self, door: Door) -> None:
        """Close it."""
        ...


@contextmanager
def lent(keeper: DoorKeeper | None, caller: Caller, scopes: Sequence[Scope]) -> Iterator[Door | None]:
    """Have a door while this lasts; none where nobody keeps any."""
    if keeper is None:
        yield None
        return
    door = keeper.lend(caller, scopes)
    try:
        yield door
    finally:
        keeper.take_back(door)
