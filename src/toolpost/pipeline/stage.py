"""What a stage is: it takes a call and what comes next, and gives an outcome."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from toolpost.contracts.ids import JsonObject
from toolpost.pipeline.call import Call


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tool gave back, validated and encoded once."""

    encoded: bytes
    content: Sequence[JsonObject] = ()


Next = Callable[[Call], Awaitable[Outcome]]
Stage = Callable[[Call, Next], Awaitable[Outcome]]


def compose(stages: Sequence[Stage], last: Next) -> Next:
    """Chain stages, outermost first."""
    chain = last
    for stage in reversed(stages):
        chain = partial(stage, proceed=chain)  # type: ignore[call-arg]
    return chain
