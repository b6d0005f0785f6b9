"""The caller of a request that the SDK handles, and its view: a context variable, set where the request is handed to the SDK."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from toolpost.base.caller import Caller
from toolpost.discovery import EVERYTHING, View


@dataclass(frozen=True, kw_only=True)
class Viewer:
    """A caller and its view."""

    caller: Caller
    view: View = EVERYTHING


VIEWER: Final[ContextVar[Viewer]] = ContextVar("toolpost_viewer")
