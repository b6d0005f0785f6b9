"""`[bus]`: how long tasks are offered, held and tried again."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from toolpost.settings.model import Count, Seconds
from toolpost.settings.section import Section


class BusSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Tasks for agents."""

    offer_s: Annotated[Seconds, Meta(description="from the answer of a poll until the task must be acknowledged")] = (
        15.0
    )
    lease_s: Annotated[Seconds, Meta(description="until a worker whose process renews its lease is thought lost")] = (
        300.0
    )
    stuck_s: Annotated[
        Seconds, Meta(description="the same, where nobody renews it: a client without `bus connect`")
    ] = 1_800.0
    attempts: Annotated[int, Meta(ge=1, le=100, description="how often a task is begun before it is dead")] = 3
    retry_s: Annotated[Seconds, Meta(description="before the second attempt; twice that before the third")] = 5.0
    retry_limit_s: Annotated[Seconds, Meta(description="the longest wait between two attempts")] = 600.0
    age_s: Annotated[Seconds, Meta(description="what waited this long comes before what is one priority higher")] = (
        600.0
    )
    capacity: Annotated[Count, Meta(description="tasks that may wait at once")] = 10_000
    idle_s: Annotated[Seconds, Meta(description="a server that `bus connect` started ends after this long unused")] = (
        3_600.0
    )
    beads: Annotated[
        Literal["auto", "on", "off"],
        Meta(description="keep the beads tracker in step; auto: where there are `bd` and a folder `.beads`"),
    ] = "auto"


BUS: Final = Section(name="bus", struct=BusSettings, default=BusSettings())
