"""The section `[bus]`: leases, attempts, capacity, and the beads tracker."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from toolpost.parts import Section
from toolpost.settings import ADVANCED, Count, Seconds


class BusSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Tasks for agents: leases, attempts, capacity."""

    lease_s: Annotated[
        Seconds, Meta(description="lease of a task whose worker's process renews it, as `bus connect` does")
    ] = 300.0
    lease_without_renewal_s: Annotated[
        Seconds, Meta(description="lease of a task that is not renewed: a client without `bus connect`", extra=ADVANCED)
    ] = 1_800.0
    attempts: Annotated[int, Meta(ge=1, le=100, description="how often a task is started before it is dead")] = 3
    capacity: Annotated[Count, Meta(description="how many tasks may be queued or waiting at once", extra=ADVANCED)] = (
        10_000
    )
    beads: Annotated[
        Literal["auto", "on", "off"],
        Meta(description="update the beads tracker; auto: if there are `bd` and a folder `.beads`", extra=ADVANCED),
    ] = "auto"


BUS: Final = Section(name="bus", struct=BusSettings, default=BusSettings())
