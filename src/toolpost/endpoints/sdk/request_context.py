"""Who sits before the SDK: the caller of a request that it handles, and what they see. Set where a request is handed to it."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from toolpost.base.caller import Caller
from toolpost.discovery import EVERYTHING, View


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A caller and their view."""

    caller: Caller
    view: View = EVERYTHING


SEAT: Final[ContextVar[Seat]] = ContextVar("toolpost_seat")
