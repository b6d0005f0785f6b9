"""How large a result may be, for a tool and a caller."""

from typing import Final, NamedTuple

from toolpost.base.caller import Scope
from toolpost.parts.results.settings import LimitRule, ResultSettings, limit_of

_CACHED: Final = 10_000


class SizeLimits(NamedTuple):
    """The limits of one result."""

    text_bytes: int
    """Of its text, and of its structured content: a model reads one of them."""
    blob_bytes: int
    """Of its images, audio and files together."""


class LimitTable:
    """The limits that are configured."""

    def __init__(self, settings: ResultSettings) -> None:
        self._settings = settings
        self._rules = [(rule, Scope(tools=_patterns(rule))) for rule in settings.rules.values()]
        self._found: dict[tuple[str, str], SizeLimits | None] = {}

    def find(self, tool: str, caller: str) -> SizeLimits | None:
        """Return the limits of the first rule that matches, else the general ones; None if there is no limit."""
        key = tool, caller
        if key not in self._found:
            if len(self._found) >= _CACHED:
                self._found.clear()
            self._found[key] = self._look_up(tool, caller)
        return self._found[key]

    def _look_up(self, tool: str, caller: str) -> SizeLimits | None:
        settings = self._settings
        for rule, scope in self._rules:
            if scope.admits(tool) and (rule.callers is None or caller in rule.callers):
                limit = limit_of(rule)
                return None if limit is None else SizeLimits(limit, rule.blob_bytes or settings.blob_bytes)
        limit = limit_of(settings)
        return None if limit is None else SizeLimits(limit, settings.blob_bytes)


def _patterns(rule: LimitRule) -> tuple[str, ...] | None:
    return None if rule.tools is None else tuple(rule.tools)
