"""Makes the tools, resources and prompts of a plugin from the results of its hooks.

A plugin whose definitions others write, as the document of an API is, may have 20,000 tools, and compiling their contracts takes
seconds. So `make_tools` touches nothing but the plugin's own: a plugin that is replaced while the gateway serves is made in a
thread.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from toolpost.authoring.context import PluginServices
from toolpost.authoring.tool import Tool
from toolpost.contracts.contract import DEFAULT_TIMEOUT_S
from toolpost.contracts.errors import PluginFailed
from toolpost.fairness import Callers, FairQueue
from toolpost.providers.configured_middleware import MIDDLEWARE_SIGNATURE, problem_of_middleware
from toolpost.providers.functions import FunctionProvider
from toolpost.providers.loaded_plugin import LoadedPlugin
from toolpost.providers.plugin_contents import PluginContents, takes_contexts
from toolpost.providers.plugin_hooks import PluginHooks
from toolpost.upstreams.notifications import Notification
from toolpost.upstreams.server_requests import Sampler


@dataclass(frozen=True, kw_only=True)
class PluginLimits:
    """Limits of the tools of all plugins."""

    default_timeout_s: float = DEFAULT_TIMEOUT_S
    threads: int = 40
    """How many synchronous tools run at once."""
    callers: Callers = field(default_factory=Callers)
    """Who shares the threads."""


@dataclass(frozen=True, kw_only=True)
class OfferedTools:
    """The tools of a plugin before their contracts are compiled."""

    tools: list[Tool]
    description: str
    services: PluginServices


class PluginMaker:
    """Makes the tools, resources and prompts that callers see."""

    def __init__(
        self,
        hooks: PluginHooks,
        limits: PluginLimits,
        *,
        is_bare: bool,
        tags: Mapping[str, Iterable[str]],
        notify: Callable[[Notification], None],
        find_sampler: Callable[[], Sampler | None],
    ) -> None:
        """With `is_bare`, names have no prefix."""
        self._hooks = hooks
        self._default_timeout_s = limits.default_timeout_s
        self._is_bare = is_bare
        self._tags = tags
        self._notify = notify
        self._find_sampler = find_sampler
        # The limit on calls in flight already limits how many wait here.
        self._threads = FairQueue("synchronous tools", limits.callers, at_once=limits.threads, waiting=sys.maxsize)

    def read(self, found: Any, loaded: LoadedPlugin) -> OfferedTools:
        """Call the hooks of a plugin that is registered; its middleware, resources and prompts are ready then."""
        hook = partial(self._hooks.hook_of, loaded.name)
        tools = list(hook("toolpost_tools")() or ())
        loaded.middleware = tuple(hook("toolpost_middleware")() or ())
        for function in loaded.middleware:
            if problem := problem_of_middleware(function):
                raise PluginFailed(f"middleware {function!r} {problem}", hint=MIDDLEWARE_SIGNATURE)
        services = PluginServices(
            plugin=loaded.name,
            notify=self._notify,
            tags=frozenset(self._tags.get(loaded.name, ())),
            sampler=self._find_sampler(),
        )
        loaded.contents = PluginContents(
            loaded.name,
            resources=hook("toolpost_resources")() or (),
            prompts=hook("toolpost_prompts")() or (),
            services=services,
            default_timeout_s=self._default_timeout_s,
            threads=self._threads,
            has_logging=takes_contexts(tools),
            is_bare=self._is_bare,
        )
        # A module may have anything under that name.
        description = found_text if isinstance(found_text := getattr(found, "description", ""), str) else ""
        return OfferedTools(tools=tools, description=description, services=services)

    def make_tools(self, loaded: LoadedPlugin, offered: OfferedTools) -> FunctionProvider:
        """Compile the contracts of a plugin's tools. May run in a thread."""
        return FunctionProvider(
            loaded.name,
            offered.tools,
            version=loaded.version,
            description=offered.description,
            default_timeout_s=self._default_timeout_s,
            threads=self._threads,
            bare=self._is_bare,
            services=offered.services,
        )
