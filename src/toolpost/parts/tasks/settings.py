"""`[tasks]`: how long MCP tasks are kept, and which calls become one."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from toolpost.parts import Section
from toolpost.settings import ADVANCED, Seconds


class TaskSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Calls that outlive their requests, for clients that declare the tasks extension of MCP."""

    ttl_s: Annotated[Seconds, Meta(description="how long the outcome of a task can be read", extra=ADVANCED)] = 3_600.0
    after_s: Annotated[
        float,
        Meta(
            ge=0,
            le=60,
            description="a call that ends sooner is answered directly; with 0 every call becomes a task",
            extra=ADVANCED,
        ),
    ] = 0.5


TASKS: Final = Section(name="tasks", struct=TaskSettings, default=TaskSettings())
