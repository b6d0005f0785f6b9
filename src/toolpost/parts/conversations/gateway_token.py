"""A way in to the gateway, for as long as a session lasts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from toolpost.base.caller import Caller, GatewayAccess, Scope


class DoorKeeper(Protocol):
    """Whoever lets agents in to the gateway."""

    def lend(self, caller: Caller, scopes: Sequence[Scope]) -> GatewayAccess | None:
        """Make a way in, for one session; None while there is none."""
        ...

    def take_back(self, door: GatewayAccess) -> None:
        """Close it."""
        ...


@contextmanager
def lent(keeper: DoorKeeper | None, caller: Caller, scopes: Sequence[Scope]) -> Iterator[GatewayAccess | None]:
    """Have a door while this lasts; None where there is none."""
    door = keeper.lend(caller, scopes) if keeper is not None else None
    if keeper is None or door is None:
        yield None
        return
    try:
        yield door
    finally:
        keeper.take_back(door)
