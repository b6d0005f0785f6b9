"""Contributions of open parts: values that the kernel finds by their kind.

A part yields a sequence of values when it opens, such as `[make_plugin(), Api(make_routes), Background(sweep)]`. Each kind is
declared where it is consumed; `KINDS` lists them. Kinds are nominal: a value is of a kind if the kind is among the bases of its
class, so that no value is taken for a guard because it happens to have the methods of one. Those that are base classes
(protocols) have no defaults: a value must have all of their members.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from toolpost.authoring import Plugin
from toolpost.base.action_items import ActionItems
from toolpost.contracts.errors import BadConfiguration
from toolpost.discovery.reranker import RerankingModel
from toolpost.discovery.tool_groups import ToolGroup
from toolpost.endpoints.auth.roster import TokenIssuer
from toolpost.endpoints.http.routes import Api, ConsoleView, StartupLine, WriteCheck
from toolpost.endpoints.observer import Observer
from toolpost.gateway import AgentCallObserver
from toolpost.manifest import describe
from toolpost.metrics import Gauges
from toolpost.middleware.interface import CallMiddleware, Guard, RecordListener, ResultLimiter
from toolpost.providers.plugin_candidates import PluginCandidate
from toolpost.providers.plugin_hooks import HookSpecs
from toolpost.providers.servers import LoginTargets
from toolpost.settings import Config
from toolpost.upstreams.server_requests import SamplingModel

T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    """An object for programs that open the gateway in their own process: `app.service(Type)` returns it."""

    object: object


@dataclass(frozen=True)
class Reload:
    """Applies changes of a section of `toolpost.toml` while the gateway runs. Other sections take effect at the next start."""

    section: str
    prepare: Callable[[Config], Awaitable[Callable[[], Awaitable[None]] | None]]
    """Prepares what a changed configuration says in the section, and returns a function that puts it in force; None if there is
    nothing to do. Raises `ToolpostError`, having changed nothing, if it cannot be done."""


@dataclass(frozen=True)
class Background:
    """Runs while the gateway serves: entered when tools can be called, left before calls in flight are ended."""

    open: Callable[[], AbstractAsyncContextManager[None]]
    while_plugin: str | None = None
    """The plugin for which it runs: it is left out if no plugin of this name is served."""


KINDS: Final[tuple[type, ...]] = (
    ActionItems,
    AgentCallObserver,
    Api,
    Background,
    CallMiddleware,
    Gauges,
    Guard,
    HookSpecs,
    LoginTargets,
    Observer,
    Plugin,
    PluginCandidate,
    RecordListener,
    Reload,
    RerankingModel,
    ResultLimiter,
    SamplingModel,
    Service,
    StartupLine,
    TokenIssuer,
    ToolGroup,
    ConsoleView,
    WriteCheck,
)


SINGLE_KINDS: Final[tuple[type, ...]] = (
    AgentCallObserver,
    Observer,
    RerankingModel,
    ResultLimiter,
    SamplingModel,
    TokenIssuer,
)
"""Kinds of which there may be one."""


class Contributions:
    """The contributions of open parts, in the order in which they opened."""

    def __init__(self) -> None:
        self._items: list[tuple[str, object]] = []
        self.parts: list[str] = []
        """Names of the open parts, also of those that contribute nothing."""

    def add(self, part: str, items: Iterable[object]) -> None:
        """Add the values of a part.

        `BadConfiguration` for a value of no known kind or without a method of its kind, since a policy that is ignored protects
        nothing, and for the second of a kind of which there may be one.
        """
        self.parts.append(part)
        for item in items:
            self._check(part, item)
            self._items.append((part, item))

    def named(self, kind: type[T]) -> list[tuple[str, T]]:
        """Return the values of a kind, each after the name of its part."""
        return [(part, cast("T", item)) for part, item in self._items if _is_of(item, kind)]

    def all(self, kind: type[T]) -> list[T]:
        """Return the values of a kind."""
        return [item for _, item in self.named(kind)]

    def first(self, kind: type[T]) -> T | None:
        """Return the value of a kind of which there may be one; None without it."""
        return next(iter(self.all(kind)), None)

    def _check(self, part: str, item: object) -> None:
        if not any(_is_of(item, kind) for kind in KINDS):
            raise BadConfiguration(
                f"The part `{part}` contributes {describe(item)}, which is of no known kind.",
                hint=f"known: {', '.join(kind.__name__ for kind in KINDS)}",
            )
        for kind in KINDS:
            if missing := _find_missing(item, kind):
                raise BadConfiguration(
                    f"The part `{part}` contributes a {kind.__name__} without {_join(missing)}: {describe(item)}.",
                    hint=f"define {'it' if len(missing) == 1 else 'them'} in the class `{type(item).__qualname__}`",
                )
        for kind in SINGLE_KINDS:
            others: list[tuple[str, object]] = self.named(kind) if _is_of(item, kind) else []
            if others:
                raise BadConfiguration(
                    f"The parts `{others[0][0]}` and `{part}` both contribute a {kind.__name__}; there may be one.",
                    hint="turn one of the two off",
                )


def _is_of(item: object, kind: type) -> bool:
    # Not isinstance: some kinds are protocols, for those who implement them in another place.
    return kind in type(item).__mro__


def _find_missing(item: object, kind: type) -> list[str]:
    """Return the members of a base class that a value of this kind has not defined: the base's own do nothing."""
    if not _is_of(item, kind):
        return []
    bases = [base for base in kind.__mro__ if getattr(base, "_is_protocol", False)]
    names = {name for base in bases for name in (*vars(base), *base.__annotations__) if not name.startswith("_")}
    return sorted(
        name
        for name in names
        if not hasattr(item, name) or (_is_method(kind, name) and getattr(type(item), name) is getattr(kind, name))
    )


def _is_method(kind: type, name: str) -> bool:
    found = getattr(kind, name, None)
    return callable(found) or isinstance(found, property)


def _join(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
