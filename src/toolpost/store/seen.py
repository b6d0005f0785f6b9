"""What each session has been sent of the tools, so that no definition is sent to it twice."""

from collections.abc import Mapping
from typing import Final, Protocol

from toolpost.base.ids import CallerId

KEPT_S: Final = 30 * 60
"""How long a session is remembered after it was last used."""

SESSIONS_LIMIT: Final = 10_000
"""How many sessions are remembered, of all callers together."""

TOOLS_LIMIT: Final = 1_000
"""How many tools are remembered of one session: what it was sent longest ago is forgotten first, and sent again if asked for."""


class SeenTools(Protocol):
    """What every session has been sent.

    A session belongs to its caller: the same name given by two callers is two sessions. Over the limit, the caller who has
    most sessions loses those that were used longest ago: whoever opens thousands pushes out nobody's but their own.
    """

    async def recall(self, caller: CallerId, session: str) -> Mapping[str, str]:
        """Return what a session has been sent, as digests by the names of tools; nothing of one that is not remembered."""
        ...

    async def remember(self, caller: CallerId, session: str, sent: Mapping[str, str]) -> None:
        """Add to what a session has been sent, and note that it was used now."""
        ...
