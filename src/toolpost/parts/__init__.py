"""What an author of a part imports, and the parts that come with Toolpost: strangers to each other.

Each folder is a part, and its `PART` says everything about it. Parts of other packages are found by their entry points in the
group `toolpost.parts`; docs/guides/write-a-part.md writes one. The names are looked up when they are first used: every part is
imported whenever a configuration is read.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolpost.base.attention import ActionItems, Attention
    from toolpost.base.caller import Principal
    from toolpost.base.signing import SigningKey, is_signed_by
    from toolpost.discovery.reranker import RerankingModel
    from toolpost.endpoints.auth.roster import Claims, Login, TokenIssuer
    from toolpost.endpoints.http.pages import Pages
    from toolpost.endpoints.http.routes import (
        Api,
        HttpContext,
        JsonRoutes,
        Page,
        Route,
        RouteRequest,
        Routes,
        StartupLine,
        WriteCheck,
    )
    from toolpost.endpoints.observer import Observer
    from toolpost.endpoints.tasks import Tasks
    from toolpost.gateway import AgentCallObserver, Answer, Gateway
    from toolpost.host.contributions import Background, Reload, Service
    from toolpost.host.host import Host
    from toolpost.host.part import PartDoctor
    from toolpost.manifest import Command, Part
    from toolpost.metrics import Counter, Gauges
    from toolpost.middleware import CallMiddleware, Guard, RecordListener, ResultLimiter
    from toolpost.providers import ProviderFilter
    from toolpost.providers.plugin_host import PluginCandidate
    from toolpost.providers.server_host import LoginTargets
    from toolpost.settings.loader import load_config
    from toolpost.settings.model import Config
    from toolpost.settings.section import Section
    from toolpost.store import Store
    from toolpost.store.part_migrations import open_part_store
    from toolpost.store.scripts import NOW, Script, Statement, change
    from toolpost.terminal.event_loop import run_async
    from toolpost.terminal.findings import Diagnosis, Finding, Group, note, ok, problem, warning
    from toolpost.terminal.options import config_option, json_option
    from toolpost.upstreams.server_requests import SamplingModel

_HOMES = {
    "toolpost.base.attention": ("ActionItems", "Attention"),
    "toolpost.base.caller": ("Principal",),
    "toolpost.base.signing": ("SigningKey", "is_signed_by"),
    "toolpost.terminal.event_loop": ("run_async",),
    "toolpost.terminal.options": ("config_option", "json_option"),
    "toolpost.terminal.findings": ("Diagnosis", "Finding", "Group", "note", "ok", "problem", "warning"),
    "toolpost.endpoints.auth.roster": ("Claims", "Login", "TokenIssuer"),
    "toolpost.endpoints.http.pages": ("Pages",),
    "toolpost.endpoints.http.routes": (
        "Api",
        "HttpContext",
        "JsonRoutes",
        "Page",
        "Route",
        "RouteRequest",
        "Routes",
        "StartupLine",
        "WriteCheck",
    ),
    "toolpost.discovery.reranker": ("RerankingModel",),
    "toolpost.endpoints.observer": ("Observer",),
    "toolpost.endpoints.tasks": ("Tasks",),
    "toolpost.gateway": ("AgentCallObserver", "Answer", "Gateway"),
    "toolpost.upstreams.server_requests": ("SamplingModel",),
    "toolpost.host.contributions": ("Background", "Reload", "Service"),
    "toolpost.host.host": ("Host",),
    "toolpost.metrics": ("Counter", "Gauges"),
    "toolpost.middleware": ("CallMiddleware", "Guard", "RecordListener", "ResultLimiter"),
    "toolpost.providers": ("ProviderFilter",),
    "toolpost.providers.plugin_host": ("PluginCandidate",),
    "toolpost.providers.server_host": ("LoginTargets",),
    "toolpost.host.part": ("PartDoctor",),
    "toolpost.manifest": ("Command", "Part"),
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
    "ActionItems",
    "AgentCallObserver",
    "Answer",
    "Api",
    "Attention",
    "Background",
    "CallMiddleware",
    "Claims",
    "Command",
    "Config",
    "Counter",
    "Diagnosis",
    "Finding",
    "Gateway",
    "Gauges",
    "Group",
    "Guard",
    "Host",
    "HttpContext",
    "JsonRoutes",
    "Login",
    "LoginTargets",
    "Observer",
    "Page",
    "Pages",
    "Part",
    "PartDoctor",
    "PluginCandidate",
    "Principal",
    "ProviderFilter",
    "RecordListener",
    "Reload",
    "RerankingModel",
    "ResultLimiter",
    "Route",
    "RouteRequest",
    "Routes",
    "SamplingModel",
    "Script",
    "Section",
    "Service",
    "SigningKey",
    "StartupLine",
    "Statement",
    "Store",
    "Tasks",
    "TokenIssuer",
    "WriteCheck",
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
