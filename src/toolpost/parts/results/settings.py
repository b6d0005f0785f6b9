"""`[results]`: limits of results in answers by caller, and the storage of larger results."""

from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from toolpost.base import Scope
from toolpost.contracts import BadConfiguration
from toolpost.parts import Section
from toolpost.settings import ADVANCED, Seconds

TOKEN_BYTES: Final = 4
"""Bytes of text that a token stands for, as in the search (`estimate_tokens`)."""

_CACHED: Final = 10_000
"""Pairs of a tool and a caller whose limits are remembered."""

LimitBytes = Annotated[int, Meta(ge=1_000, le=1_000_000_000)]
LEAST_TOKENS: Final = 250
LimitTokens = Annotated[int, Meta(ge=LEAST_TOKENS, le=250_000_000)]
RuleTokens = Annotated[int, Meta(ge=0, le=250_000_000)]


class LimitRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits for the calls that match every condition that is set. The first rule that matches counts."""

    tools: Annotated[list[str] | None, Meta(description="patterns of tool names, such as `logs__*`; `!…` excludes")] = (
        None
    )
    callers: Annotated[list[str] | None, Meta(description="callers by name, as the audit has them")] = None
    limit_tokens: Annotated[
        RuleTokens | None, Meta(description="as `results.limit_tokens`; 0 sends results whole, whatever their size")
    ] = None


class ResultSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Large results: the size of their excerpt in an answer, and the storage of the rest. Off without a limit."""

    limit_tokens: Annotated[
        LimitTokens | None, Meta(description="the text of a result, and its structured content, in tokens of 4 bytes")
    ] = None
    blob_bytes: Annotated[
        LimitBytes,
        Meta(
            description="images, audio and files of a result together, in base64; others become links", extra=ADVANCED
        ),
    ] = 4_000_000
    keep_s: Annotated[Seconds, Meta(description="how long the whole result can be read", extra=ADVANCED)] = 3_600.0
    keep_mb: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="how much is kept for one caller, in MB; the oldest results go first",
            extra=ADVANCED,
        ),
    ] = 256
    rules: Annotated[
        dict[str, LimitRule], Meta(description="other limits for some tools and callers, in this order")
    ] = {}

    @property
    def is_limited(self) -> bool:
        """Whether any result may have to be made smaller."""
        return bool(self.smallest)

    @property
    def smallest(self) -> int:
        """The size up to which every result is sent as it is, 0 without any limit."""
        texts = [limit_of(self), *(limit_of(rule) for rule in self.rules.values())]
        limits = [limit for limit in texts if limit is not None]
        return min([*limits, self.blob_bytes]) if limits else 0


def limit_of(one: ResultSettings | LimitRule) -> int | None:
    """Return the limit in bytes; None without one."""
    return one.limit_tokens * TOKEN_BYTES if one.limit_tokens else None


class SizeLimits(NamedTuple):
    """The limits of one result."""

    text_bytes: int
    """Of its text, and of its structured content: a model reads one of them."""
    blob_bytes: int
    """Of its images, audio and files together."""


class LimitTable:
    """The limits that are configured, by tool and caller."""

    def __init__(self, settings: ResultSettings) -> None:
        self._settings = settings
        self._rules = [
            (rule, Scope(tools=None if rule.tools is None else tuple(rule.tools))) for rule in settings.rules.values()
        ]
        # Looked up for each large result: matching the patterns of many rules takes longer than the rest.
        self._found: dict[tuple[str, str], SizeLimits | None] = {}

    def find(self, tool: str, caller: str) -> SizeLimits | None:
        """Return the limits of the first rule that matches, else the general ones; None if there is no limit."""
        key = tool, caller
        if key not in self._found:
            if len(self._found) >= _CACHED:
                self._found.clear()
            matching: ResultSettings | LimitRule = next(
                (
                    rule
                    for rule, scope in self._rules
                    if scope.admits(tool) and (rule.callers is None or caller in rule.callers)
                ),
                self._settings,
            )
            limit = limit_of(matching)
            self._found[key] = None if limit is None else SizeLimits(limit, self._settings.blob_bytes)
        return self._found[key]


def check_results(settings: ResultSettings) -> None:
    """Raise `BadConfiguration` for a rule without a limit, or with one that is too small to be of use."""
    for name, rule in settings.rules.items():
        place = f"results.rules.{name}"
        if rule.limit_tokens is None:
            raise BadConfiguration(f"{place} has no limit.", hint="set limit_tokens, to 0 for results of any size")
        if 0 < rule.limit_tokens < LEAST_TOKENS:
            raise BadConfiguration(
                f"{place}.limit_tokens is {rule.limit_tokens}, and {LEAST_TOKENS} is the least.",
                hint="0 is for no limit",
            )
        if any(pattern.removeprefix("!") == "" for pattern in rule.tools or ()):
            raise BadConfiguration(f"{place}.tools: a pattern is empty.", hint='write a pattern such as "logs__*"')


RESULTS: Final = Section(name="results", struct=ResultSettings, default=ResultSettings())
