"""A plugin that was loaded, or could not be: its state, and its problems."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from toolpost.authoring import Middleware
from toolpost.base import JsonObject, event
from toolpost.base.author_code import place_of_error, place_of_function
from toolpost.contracts.errors import GatewayError, StoreUnavailable, ToolpostError
from toolpost.manifest import BadManifest
from toolpost.providers.contract_watch import Mode
from toolpost.providers.functions import FunctionProvider
from toolpost.providers.plugin_candidates import PluginCandidate
from toolpost.providers.plugin_contents import PluginContents
from toolpost.providers.quarantine import PinnedPlugin

_log = logging.getLogger("toolpost.plugins")

PROBLEMS_LIMIT: Final = 20
"""How many different problems are kept for each plugin."""


def conceal_store(error: GatewayError) -> GatewayError:
    """Return an error of the store in the words of the database, without the address of the store."""
    if isinstance(error, StoreUnavailable):
        return StoreUnavailable()
    return error if error.__cause__ is None else GatewayError(str(error.__cause__).partition("\n")[0])


def explain_author_error(error: Exception) -> str:
    """Return what went wrong in the code of a plugin or part, with the line and the hint."""
    if isinstance(error, GatewayError):
        # Callers are shown it, who need not know the address of the store.
        error = conceal_store(error)
    if isinstance(error, ToolpostError):
        why = error.message
    else:
        why = str(error) if isinstance(error, BadManifest) else f"{type(error).__name__}: {error}"
    if (place := place_of_error(error)) is not None:
        why = f"{why} ({place})"
    if isinstance(error, ToolpostError) and error.hint:
        why = f"{why.rstrip('.')}; {error.hint}"
    return why


@dataclass(kw_only=True)
class LoadedPlugin:
    """A plugin and its state."""

    name: str
    kind: Literal["plugin", "part"] = "plugin"
    """A part is kept here only if it failed: it is shown with the plugins that it would have brought."""
    reference: str = ""
    """What it was loaded by: `package.module:attribute`, or the name of an entry point."""
    version: str = ""
    state: str = "healthy"
    """`healthy`; `degraded` when some of its tools were refused; `failed` when none of it serves; `disabled`."""
    problems: list[str]
    provider: FunctionProvider | PinnedPlugin | None = None
    contents: PluginContents | None = None
    """Its resources and prompts."""
    unwatch: Callable[[], None] | None = None
    """Ends that its changes are followed."""
    middleware: tuple[Middleware, ...] = ()
    contracts: Mode | Literal["trusted"] = "trusted"
    """As that of its candidate."""
    for_everyone: bool = False
    """As that of its candidate."""

    @classmethod
    def of(cls, candidate: PluginCandidate) -> "LoadedPlugin":
        """Make a plugin of which nothing is loaded yet."""
        return cls(
            name=candidate.name,
            reference=candidate.name,
            version=candidate.version,
            contracts=candidate.contracts,
            for_everyone=candidate.for_everyone,
            problems=[],
        )

    @property
    def is_served(self) -> bool:
        """Whether at least some of it serves."""
        return self.state in ("healthy", "degraded")

    def fail(self, what: str, error: Exception) -> None:
        """Record and log why nothing of it serves."""
        self.state = "failed"
        why = explain_author_error(error)
        self.problems.append(f"{self.kind} `{self.name}` {what}: {why}")
        event(_log, logging.ERROR, f"{self.kind} {what}", **{self.kind: self.name}, reason=why, exception=error)

    def degrade(self, what: str, error: BaseException) -> None:
        """Record a problem of a plugin that is served all the same."""
        why = error.message if isinstance(error, ToolpostError) else f"{type(error).__name__}: {error}"
        problem = f"plugin `{self.name}` {what}: {why}"
        if self.state == "healthy":
            self.state = "degraded"
        if problem not in self.problems and len(self.problems) < PROBLEMS_LIMIT:
            self.problems.append(problem)

    def refuse_tools(self, provider: FunctionProvider) -> None:
        """Record and log the tools whose contract was refused."""
        for refusal, tool in zip(provider.refused, provider.refused_tools, strict=True):
            self.state = "degraded"
            place = place_of_function(tool.function)
            reason = f"{refusal.message} ({place})" if place else refusal.message
            self.problems.append(reason)
            event(_log, logging.ERROR, "tool refused", plugin=self.name, reason=reason)

    def as_object(self) -> JsonObject:
        tools = len(self.provider.tools) if self.provider else 0
        report: JsonObject = {"state": self.state, "version": self.version, "tools": tools}
        if self.contents is not None:
            resources, prompts = self.contents.counts
            report |= {"resources": resources} if resources else {}
            report |= {"prompts": prompts} if prompts else {}
        return report | ({"problems": self.problems} if self.problems else {})
