"""Plugins that are not loaded yet: named by reference, installed, or given; and what their names are once they are.

`references` resolves what a reference leads to.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Literal

from toolpost.authoring import Plugin, hookspecs
from toolpost.base.server_name import usable_name
from toolpost.providers.contract_watch import Mode
from toolpost.providers.references import list_plugins, resolve, split_reference
from toolpost.upstreams.in_process import find_given_name


@dataclass(frozen=True, kw_only=True)
class PluginCandidate:
    """A plugin that is not loaded yet."""

    name: str
    load: Callable[[], Any]
    version: str = ""
    contracts: Mode | Literal["trusted"] = "trusted"
    """The definitions of a plugin are as trusted as its code. Where others write them, as the document of an API is, its tools
    are held to their lock or pin as those of servers are: `observe` reports changes, `enforce` quarantines changed tools."""
    for_everyone: bool = False
    """Whether every caller sees it, on every path and in every scope: it must show a caller nothing but its own. Annotations as
    read-only hold all the same."""


def candidates_from(references: Iterable[str]) -> list[PluginCandidate]:
    """Make candidates from references: `package.module:attribute`, `package.module` for a module that is a plugin, or a path."""
    return [PluginCandidate(name=reference, load=lambda r=reference: resolve(r)) for reference in references]  # type: ignore[misc]


def find_installed() -> list[PluginCandidate]:
    """Find the plugins that installed packages declare under the entry point group `toolpost`."""
    return [
        PluginCandidate(name=point.name, load=point.load, version=point.dist.version if point.dist else "")
        for point in sorted(entry_points(group=hookspecs.ENTRY_POINT_GROUP))
    ]


def name_of(found: Any, candidate: PluginCandidate) -> str:
    """Return the plugin's own name, else the last part of its reference."""
    if isinstance(found, Plugin):
        return found.name
    module, attribute = split_reference(candidate.name)
    return (attribute or module).rsplit(".", 1)[-1]


def name_of_server(found: Any, candidate: PluginCandidate) -> str:
    """Return the name of a server object as a prefix of tools; of one without a name, the name of its module."""
    return usable_name(find_given_name(found) or split_reference(candidate.name)[0].rsplit(".", 1)[-1])


def explain_no_plugin(found: Any, reference: str) -> str:
    """Say what a reference leads to that is not a plugin, and what was probably meant."""
    if inspect.ismodule(found):
        meant = " or ".join(f"`{reference}:{name}`" for name in list_plugins(found))
        return "the module is no plugin" + (f"; did you mean {meant}?" if meant else " and has none in it")
    if inspect.isclass(found):
        return f"`{reference}` is a class; name an object of it: `plugin = {found.__name__}()`"
    return f"`{reference}` is neither a plugin nor a server, but of the type `{type(found).__name__}`"
