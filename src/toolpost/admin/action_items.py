"""Items that wait for the operator of a gateway: servers that are down, changed tools, plugins that could not be loaded."""

from typing import Final

from toolpost.admin.contracts import list_changed_tools
from toolpost.base.action_items import ActionItem
from toolpost.providers.plugins import Plugins
from toolpost.providers.server_provider import ServerProvider
from toolpost.providers.servers import Servers
from toolpost.settings.masking import make_concealer
from toolpost.upstreams.report import ServerState

LINES: Final = 5
CHANGED_LIMIT: Final = 20
_DOWN: Final = (ServerState.FAILED, ServerState.SUSPENDED)


def list_action_items(servers: Servers, plugins: Plugins) -> list[ActionItem]:
    """Return what waits for the operator, servers first."""
    found: list[ActionItem] = []
    for provider in servers.providers.values():
        if provider.state in _DOWN:
            found.append(_describe_failed(provider))
        if (problem := provider.degraded) is not None:
            found.append(
                ActionItem(
                    title=f"The server {provider.name} is degraded",
                    text=problem,
                    path=f"/servers/{provider.name}",
                    command=f"toolpost doctor {provider.name}",
                )
            )
    found += _describe_changed(servers)
    found += [
        ActionItem(
            title=f"The plugin {plugin.name} could not be loaded",
            text="; ".join(plugin.problems),
            command=f"toolpost doctor {plugin.name}",
            is_urgent=True,
        )
        for plugin in plugins.plugins
        if plugin.state == "failed"
    ]
    return found


def _describe_failed(provider: ServerProvider) -> ActionItem:
    report, conceal = provider.report(), make_concealer(provider.spec)
    text = conceal(report.last_error or "it does not start")
    lines = [conceal(line) for line in report.stderr_tail[-LINES:]]
    return ActionItem(
        title=f"The server {provider.name} is not available",
        text=f"{text}; {report.hint}" if report.hint else text,
        path=f"/servers/{provider.name}",
        command=f"toolpost doctor {provider.name}",
        # The error quotes the last line: one line alone would be shown twice.
        lines=[] if len(lines) == 1 and lines[0] in text else lines,
        is_urgent=True,
    )


def _describe_changed(servers: Servers) -> list[ActionItem]:
    changed = [tool for tool in list_changed_tools(servers) if not tool.status.is_harmless]
    items = [
        ActionItem(
            title=f"{tool.name} has changed" + (" and is quarantined" if tool.is_quarantined else ""),
            text=f"{tool.status.as_object()['verdict']} since it was {tool.status.since}",
            path=f"/contracts/{tool.name}",
            command=f"toolpost lock --accept {tool.name}",
            is_urgent=tool.is_quarantined,
        )
        for tool in changed[:CHANGED_LIMIT]
    ]
    if (rest := len(changed) - CHANGED_LIMIT) > 0:
        items.append(ActionItem(title=f"{rest} more tools have changed", path="/contracts", command="toolpost diff"))
    return items
