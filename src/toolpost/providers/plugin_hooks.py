"""The hooks that plugins implement.

They are not called through pluggy, which calls those of all plugins: the failure of one must not affect others.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import anyio
import pluggy

from toolpost.authoring import hookspecs
from toolpost.base.nearest import nearest_name
from toolpost.contracts.errors import PluginFailed

STEP_LIMIT_S: Final = 30.0
"""How long a plugin may take to start, and to stop."""


@dataclass(frozen=True)
class HookSpecs:
    """Hooks that plugins may implement, beside those of the kernel. A part calls them, with `Host.find_hooks`."""

    module: ModuleType
    """Its functions that are marked with `hookspec`."""


class PluginHooks:
    """The objects that implement hooks, by the names of their plugins."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager("toolpost")
        self._manager.add_hookspecs(hookspecs)

    def add(self, hooks: HookSpecs) -> None:
        """Let plugins implement these hooks; before plugins are loaded."""
        self._manager.add_hookspecs(hooks.module)

    def register(self, name: str, found: Any) -> bool:
        """Register an object; returns whether it is a plugin. One that is not is forgotten."""
        self._manager.register(found, name)
        if inspect.isclass(found) or not self._manager.get_hookcallers(found):
            self._manager.unregister(name=name)
            return False
        return True

    def check(self, found: Any) -> None:
        """Raise `PluginFailed` if a registered object implements a hook that is not known."""
        known = [name for name, caller in vars(self._manager.hook).items() if getattr(caller, "spec", None) is not None]
        for caller in self._manager.get_hookcallers(found) or ():
            mine = next(each for each in caller.get_hookimpls() if each.plugin is found)
            if caller.has_spec() or mine.optionalhook:
                continue
            near = nearest_name(caller.name, known)
            raise PluginFailed(
                f"unknown hook `{caller.name}`",
                hint=f"did you mean `{near}`?" if near else f"known: {', '.join(sorted(known))}",
            )

    def restore(self, name: str, found: Any) -> None:
        """Register an object again."""
        self._manager.register(found, name)

    def remove(self, name: str) -> None:
        """Forget an object."""
        self._manager.unregister(name=name)

    def find(self, name: str) -> Any:
        """Return the object of a plugin; None if it is not registered."""
        return self._manager.get_plugin(name)

    def hook_of(self, name: str, hook: str) -> Callable[[], Any]:
        """Return one plugin's implementation of a hook, else a function that does nothing."""
        registered = self._manager.get_plugin(name)
        is_implemented = self._manager.parse_hookimpl_opts(registered, hook) is not None
        return getattr(registered, hook) if is_implemented else lambda: None

    def list_implementations(self, hook: str) -> list[tuple[str, Callable[..., Any], tuple[str, ...]]]:
        """Return name of the plugin, function and names of its parameters, in the order of their calls."""
        found = reversed(getattr(self._manager.hook, hook).get_hookimpls())
        return [(each.plugin_name, each.function, tuple(each.argnames)) for each in found]


async def call_step(step: Callable[[], Any]) -> None:
    """Call what starts or stops a plugin, for `STEP_LIMIT_S` at most."""
    with anyio.fail_after(STEP_LIMIT_S):
        pending = step()
        if inspect.isawaitable(pending):
            await pending
