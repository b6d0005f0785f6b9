"""Items that wait for the operator of a gateway: servers that are down, changed tools, plugins that could not be loaded."""

from typing import Final

from toolpost.admin.contracts import list_changed_tools
from toolpost.base.action_items import ActionItem
from toolpost.contracts.compatibility.definition import name_instructions
from toolpost.providers.plugins import Plugins
from toolpost.providers.server_provider import ServerProvider
from toolpost.providers.servers import Servers
from toolpost.settings.masking import make_concealer
from toolpost.upstreams.report import ServerState

LINES: Final = 5
CHANGED_LIMIT: Final = 20
LOST_LEAST: Final = 3
LOST_WITHIN_S: Final = 600.0
"""A server that ended unasked so often, within this time, restarts repeatedly."""
_DOWN: Final = (ServerState.FAILED, ServerState.SUSPENDED)


def list_action_items(servers: Servers, plugins: Plugins, now: float) -> list[ActionItem]:
    """Return what waits for the operator, servers first; `now` is in seconds since 1970."""
    found: list[ActionItem] = []
    for provider in servers.providers.values():
        if provider.state in _DOWN:
            found.append(_describe_failed(provider))
        elif (item := _describe_restarts(provider, now)) is not None:
            found.append(item)
        if (problem := provider.degraded) is not None:
            found.append(
                ActionItem(
                    kind="degraded",
                    title=f"The server {provider.name} is degraded",
                    text=problem,
                    action="Look at the server",
                    path=f"/servers/{provider.name}",
                    command=f"toolpost doctor {provider.name}",
                )
            )
        found += _describe_withheld(provider)
    found += _describe_changed(servers)
    found += servers.list_expiring_logins(now)
    found += [
        ActionItem(
            kind="plugin",
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
        kind="server",
        title=f"The server {provider.name} is not available",
        text=f"{text}; {report.hint}" if report.hint else text,
        since=report.last_error_at,
        action="Repair the server",
        path=f"/servers/{provider.name}",
        command=f"toolpost doctor {provider.name}",
        # The error quotes the last line: one line alone would be shown twice.
        lines=[] if len(lines) == 1 and lines[0] in text else lines,
        is_urgent=True,
    )


def _describe_restarts(provider: ServerProvider, now: float) -> ActionItem | None:
    report, conceal = provider.report(), make_concealer(provider.spec)
    lost = [moment for moment in report.losses if moment > now - LOST_WITHIN_S]
    if len(lost) < LOST_LEAST:
        return None
    text, lines = conceal(report.last_error or ""), [conceal(line) for line in report.stderr_tail[-LINES:]]
    return ActionItem(
        kind="restarts",
        title=f"The server {provider.name} ended unasked {len(lost)} times within 10 minutes",
        text=text,
        since=lost[0],
        action="Look at its output",
        path=f"/servers/{provider.name}",
        command=f"toolpost logs --server {provider.name}",
        lines=[] if len(lines) == 1 and lines[0] in text else lines,
        is_urgent=True,
    )


def _describe_withheld(provider: ServerProvider) -> list[ActionItem]:
    """Tell of instructions and skills that are quarantined for what they say to models, although they have not changed."""
    instructions = name_instructions(provider.name)
    texts = {instructions: provider.instructions.findings, **provider.skills.findings}
    return [
        ActionItem(
            kind="quarantine",
            title=f"The instructions of {provider.name} are quarantined"
            if name == instructions
            else f"The skill {name} is quarantined",
            text="; ".join(finding.summary for finding in findings[:CHANGED_LIMIT]),
            action="Read the findings",
            path=f"/servers/{provider.name}",
            command=f"toolpost lock --accept {name}",
        )
        for name, findings in texts.items()
        if findings and provider.is_quarantined(name) and name not in provider.statuses
    ]


def _describe_changed(servers: Servers) -> list[ActionItem]:
    changed = [tool for tool in list_changed_tools(servers) if not tool.status.is_harmless]
    items = [
        ActionItem(
            kind="quarantine" if tool.is_quarantined else "contract",
            title=f"{tool.name} has changed" + (" and is quarantined" if tool.is_quarantined else ""),
            text=f"{tool.status.as_object()['verdict']} since it was {tool.status.since}",
            action="Decide about the change",
            path=f"/contracts/{tool.name}",
            command=f"toolpost lock --accept {tool.name}",
            is_urgent=tool.is_quarantined,
        )
        for tool in changed[:CHANGED_LIMIT]
    ]
    if (rest := len(changed) - CHANGED_LIMIT) > 0:
        items.append(
            ActionItem(
                kind="contract",
                title=f"{rest} more tools have changed",
                action="Decide about the changes",
                path="/contracts",
                command="toolpost diff",
            )
        )
    return items
