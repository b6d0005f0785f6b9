"""Which rule of `[approvals]` a call falls under."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolpost import Forbidden, ToolInfo
from toolpost.base import JsonObject, Scope
from toolpost.contracts import compile_schema
from toolpost.parts.approvals.rounds import default_quorum
from toolpost.parts.approvals.settings import ApprovalSettings, RuleSettings, voters_of

DEFAULT_HINTS: Final[Mapping[str, bool]] = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""What MCP says of a tool that says nothing."""

TagsOf = Callable[[str], frozenset[str]]


@dataclass(frozen=True, kw_only=True)
class ApprovalRule:
    """A rule, with what it needs prepared."""

    name: str
    settings: RuleSettings
    voters: tuple[str, ...]
    condition: Callable[[JsonObject], bool] | None
    """Whether the rule is about a call with these arguments; None if it is about all."""

    def may_match(self, tool: ToolInfo, tags: frozenset[str], *, trusts_hints: bool) -> bool:
        """Whether some call of this tool may fall under the rule, whatever its arguments."""
        settings = self.settings
        scope = Scope(tools=tuple(settings.tools) if settings.tools is not None else None)
        # A tool that was renamed answers to its former names, by which the rule may still know it. Served alone, a plugin lists
        # its tools without its own name, and the rule must not miss them for that.
        if not tool.is_in(scope):
            return False
        if settings.tags is not None and not tags & frozenset(settings.tags):
            return False
        hints: Mapping[str, Any] = {**DEFAULT_HINTS, **tool.annotations} if trusts_hints else DEFAULT_HINTS
        return all(hints.get(name) == wanted for name, wanted in settings.annotations.items())

    def matches(self, arguments: JsonObject) -> bool:
        """Whether a call of a tool that may match does, by its arguments."""
        return self.condition is None or self.condition(arguments)

    def pool(self, requester: str) -> tuple[str, ...]:
        """Return who may be asked to vote on a call of this requester."""
        return tuple(voter for voter in self.voters if self.settings.requester_may_vote or voter != requester)

    def electorate(self, requester: str, voters: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
        """Return who may vote on a call of this requester, and how many approvals are needed. Raises if too few may vote."""
        needed = self.settings.votes or default_quorum(len(voters))
        if needed > len(voters):
            raise Forbidden(
                f"The rule `{self.name}` needs {needed} approvals, and {len(voters)} callers other than `{requester}` may vote.",
                hint=f"an operator names more voters in approvals.rules.{self.name}",
            )
        return voters, needed


class ApprovalRules:
    """All rules, in their order."""

    def __init__(self, settings: ApprovalSettings, tags_of: TagsOf, *, confirmed: Iterable[str] = ()) -> None:
        """`confirmed` names the servers whose annotations count (`modes.confirmed`)."""
        self._confirmed = frozenset(confirmed)
        self._tags_of = tags_of
        self.rules: Sequence[ApprovalRule] = [
            ApprovalRule(
                name=name,
                settings=rule,
                voters=voters_of(rule.voters, settings.roles),
                condition=compile_schema(rule.arguments, root_object=False).is_valid if rule.arguments else None,
            )
            for name, rule in settings.rules.items()
        ]

    def for_tool(self, tool: ToolInfo) -> list[ApprovalRule]:
        """Return the rules that some call of a tool may fall under."""
        if tool.provider == OWN_PLUGIN and not tool.is_upstream:
            # Voting must not need a vote.
            return []
        tags = self._tags_of(tool.provider)
        servers = tool.servers or [tool.provider]
        trusts = not tool.is_upstream or tool.provider in self._confirmed or self._confirmed.issuperset(servers)
        return [rule for rule in self.rules if rule.may_match(tool, tags, trusts_hints=trusts)]

    def find(self, tool: ToolInfo, arguments: JsonObject) -> ApprovalRule | None:
        """Return the first rule that a call falls under."""
        return next((rule for rule in self.for_tool(tool) if rule.matches(arguments)), None)


OWN_PLUGIN: Final = "approvals"
