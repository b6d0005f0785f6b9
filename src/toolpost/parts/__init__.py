"""What an author of a part imports, and the parts that come with Toolpost: strangers to each other.

apis           APIs that an OpenAPI document describes, as tools
approvals      calls that run only once others have approved them
bus            tasks for agent workers, with leases
console        the web console: servers, tools, contracts and calls
conversations  agents that people and plugins talk to
export         the audit, passed on to other systems, and kept as long as wanted
login          login in the browser for MCP clients
models         models, agents and servers of which the best is asked
results        large results, truncated, and the rest of them
tasks          MCP tasks: calls that outlive their requests
telemetry      OpenTelemetry: traces and metrics
trail          what agents planned, decided and called, provable
workspace      a code index

A part is found by its entry point in the group `toolpost.parts`; docs/guides/write-a-part.md writes one. The names are looked
up when they are first used: a part is imported whenever a configuration is read.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolpost.base.attention import Attention
    from toolpost.base.caller import Principal
    from toolpost.base.signing import SigningKey, is_signed_by
    from toolpost.endpoints.auth.roster import Claims, Login, LoginServer
    from toolpost.endpoints.http.pages import Pages
    from toolpost.endpoints.http.routes import HttpContext, JsonRoutes, Route, RouteRequest, Routes
    from toolpost.gateway import Answer, Gateway
    from toolpost.host.host import Host, Provided
    from toolpost.host.part import Part, PartDoctor
    from toolpost.manifest import Command
    from toolpost.metrics import Counter
    from toolpost.settings.loader import load_config
    from toolpost.settings.model import Config
    from toolpost.settings.section import Section
    from toolpost.store import Store
    from toolpost.store.part_migrations import open_part_store
    from toolpost.store.scripts import NOW, Script, Statement, change
    from toolpost.terminal.event_loop import run_async
    from toolpost.terminal.findings import Diagnosis, Finding, Group, note, ok, problem, warning
    from toolpost.terminal.options import config_option, json_option

_HOMES = {
    "toolpost.base.attention": ("Attention",),
    "toolpost.base.caller": ("Principal",),
    "toolpost.base.signing": ("SigningKey", "is_signed_by"),
    "toolpost.terminal.event_loop": ("run_async",),
    "toolpost.terminal.options": ("config_option", "json_option"),
    "toolpost.terminal.findings": ("Diagnosis", "Finding", "Group", "note", "ok", "problem", "warning"),
    "toolpost.endpoints.auth.roster": ("Claims", "Login", "LoginServer"),
    "toolpost.endpoints.http.pages": ("Pages",),
    "toolpost.endpoints.http.routes": ("HttpContext", "JsonRoutes", "Route", "RouteRequest", "Routes"),
    "toolpost.gateway": ("Answer", "Gateway"),
    "toolpost.host.host": ("Host", "Provided"),
    "toolpost.metrics": ("Counter",),
    "toolpost.host.part": ("Part", "PartDoctor"),
    "toolpost.manifest": ("Command",),
    "toolpost.settings.model": ("Config",),
    "toolpost.settings.loader": ("load_config",),
    "toolpost.settings.section": ("Section",),
    "toolpost.store": ("Store",),
    "toolpost.store.part_migrations": ("open_part_store",),
    "toolpost.store.scripts": ("NOW", "Script", "Statement", "change"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "NOW",
    "Answer",
    "Attention",
    "Claims",
    "Command",
    "Config",
    "Counter",
    "Diagnosis",
    "Finding",
    "Gateway",
    "Group",
    "Host",
    "HttpContext",
    "JsonRoutes",
    "Login",
    "LoginServer",
    "Pages",
    "Part",
    "PartDoctor",
    "Principal",
    "Provided",
    "Route",
    "RouteRequest",
    "Routes",
    "Script",
    "Section",
    "SigningKey",
    "Statement",
    "Store",
    "change",
    "config_option",
    "is_signed_by",
    "json_option",
    "load_config",
    "note",
    "ok",
    "open_part_store",
    "problem",
    "run_async",
    "warning",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
