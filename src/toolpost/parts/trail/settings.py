"""`[trail]`: the calls in the decision trail, and those that need a decision."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from toolpost.parts import Section
from toolpost.settings import ADVANCED

ALL_AGENTS: Final = "*"
"""In `deciding_agents`: every agent."""


class TrailSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The decision trail: plans, decisions and calls of agents, in signed sessions."""

    sessions: Annotated[
        Literal["started", "all"],
        Meta(
            description="whose calls are recorded: of conversations and MCP sessions in which a session was `started`, or of"
            " `all` of them"
        ),
    ] = "started"
    decisions: Annotated[
        dict[str, str],
        Meta(
            description="tools that are refused until their caller has recorded a decision for a task, each with the argument"
            ' that has its `task_id`, such as `bus__worker_done = "bead_id"`',
            extra=ADVANCED,
        ),
    ] = {}
    deciding_agents: Annotated[
        list[str],
        Meta(
            description="agents of `[agents]` that must record a decision in each turn, `*` for all: one that has not is asked"
            " for it once more, and then the turn fails",
            extra=ADVANCED,
        ),
    ] = []

    keep_days: Annotated[
        Annotated[float, Meta(gt=0, le=36_500)] | None,
        Meta(
            description="remove the records of a session so many days after it was finalized; root, size and signature are kept."
            " Without it, all are kept",
            extra=ADVANCED,
        ),
    ] = None

    @property
    def requires_decisions(self) -> bool:
        """Whether anything is refused, or fails, without a decision."""
        return bool(self.decisions or self.deciding_agents)


TRAIL: Final = Section(name="trail", struct=TrailSettings, default=TrailSettings())
