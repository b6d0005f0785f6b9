"""The servers behind a gateway, as an operator sees them and acts on them: plain values, without the secrets of the servers."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import anyio
import msgspec
from anyio import to_thread

from toolpost.base import Json, JsonObject, event, format_second, nearest_name
from toolpost.contracts.compatibility.definition import name_instructions
from toolpost.contracts.errors import NotFound, UpstreamUnavailable
from toolpost.contracts.findings import Finding
from toolpost.protocol.rpc import encode
from toolpost.providers.findings import Findings
from toolpost.providers.server_provider import ServerProvider
from toolpost.providers.servers import Servers
from toolpost.settings.masking import make_concealer

_log = logging.getLogger("toolpost.admin")

READY_S: Final = 45.0
"""How long an answer waits for a server that starts; after that its state is `starting`."""

ACTIONS: Final = ("restart", "start", "stop")


async def report_servers(servers: Servers) -> list[JsonObject]:
    """Report all servers, in the order of the configuration."""
    # One by one: each looks at every process of a server, and calls in flight get their turn in between.
    return [await _report(servers, provider) for provider in servers.providers.values()]


async def report_server(servers: Servers, name: str) -> JsonObject:
    """Report a server and those of its tools that are not as they should be; raises `NotFound`."""
    return await _report(servers, _find_server(servers, name))


async def act_on_server(servers: Servers, name: str, action: str, *, caller: str) -> JsonObject:
    """Start, stop or restart a server, wait until it is ready, and report it.

    Raises `NotFound` for an unknown server or action, and `UpstreamUnavailable` if it does not start.
    """
    provider = _find_server(servers, name)
    if action not in ACTIONS:
        raise NotFound(f"There is no action `{action[:128]}`.", hint=f"known: {', '.join(ACTIONS)}")
    event(_log, logging.INFO, "server action", server=provider.name, action=action, caller=caller)
    try:
        await _act(provider, action)
    except UpstreamUnavailable as error:
        # The server's last output may contain its secrets.
        conceal = make_concealer(provider.spec)
        stderr = conceal(error.stderr) if error.stderr else None
        raise UpstreamUnavailable(conceal(error.message), hint=error.hint, stderr=stderr, **error.details) from error
    return await _report(servers, provider)


def report_process(provider: ServerProvider) -> JsonObject:
    """Report the state and the processes of a server, without its tools: quick enough to be asked every second."""
    report, conceal = provider.report(), make_concealer(provider.spec)
    return {
        "state": report.state.value,
        "pids": list(report.pids),
        "memoryBytes": report.memory_bytes,
        "inFlight": report.in_flight,
        "restarts": report.restarts,
        "lastError": conceal(report.last_error) if report.last_error is not None else None,
        "lastErrorAt": report.last_error_at and format_second(report.last_error_at),
        "hint": report.hint,
        "stderrTail": [conceal(line) for line in report.stderr_tail],
        "protocolErrors": report.protocol_errors,
        "degraded": report.degraded,
        # A server that a person stopped stays so; any other starts with the next call, and is nothing to worry about.
        "isHalted": any(supervisor.is_stopped for supervisor in provider.supervisors),
        "transport": report.transport,
        "version": report.version,
    }


async def _report(servers: Servers, provider: ServerProvider) -> JsonObject:
    spec, process = provider.spec, report_process(provider)
    needs_person = spec.auth is not None and spec.auth.needs_person
    findings = servers.watched_tools.findings.of(provider.name)
    return {
        "name": provider.name,
        **process,
        # A person can log in where it is configured so, or the server has asked for it.
        "takesLogin": needs_person or "toolpost login" in (process["hint"] or ""),
        "tags": sorted(spec.tags),
        "tools": len(provider.tools),
        # In a thread: a server decides how many tools there are to tell of.
        **await to_thread.run_sync(_report_tools, provider, findings, make_concealer(spec)),
    }


def _report_tools(
    provider: ServerProvider, of_tools: Findings, conceal: Callable[[str], str]
) -> dict[str, msgspec.Raw]:
    """Encode what is reported of single tools, one by one: encoding all at once would hold the interpreter lock as long."""
    statuses = provider.statuses
    found: dict[str, Sequence[Finding]] = {str(name): each for name, each in of_tools.items()}
    found.update((str(name), each) for name, each in provider.skills.findings.items())
    if of_instructions := provider.instructions.findings:
        found[name_instructions(provider.name)] = of_instructions
    refused = [
        encode(
            {
                "tool": refusal.details.get("tool"),
                "place": refusal.details.get("place"),
                "reason": refusal.details.get("reason", refusal.message),
            }
        )
        for refusal in provider.refused
    ]
    return {
        "contracts": _join(
            (name, status.as_object() | {"quarantined": provider.is_quarantined(name)})
            for name, status in statuses.items()
        ),
        "findings": _join(
            (name, [each.to_json() | {"excerpt": conceal(each.excerpt)} for each in listed])
            for name, listed in found.items()
        ),
        "refused": msgspec.Raw(b"[%b]" % b",".join(refused)),
    }


def _join(members: Iterable[tuple[str, Json]]) -> msgspec.Raw:
    return msgspec.Raw(b"{%b}" % b",".join([b"%b:%b" % (encode(name), encode(value)) for name, value in members]))


async def _act(provider: ServerProvider, action: str) -> None:
    for supervisor in provider.supervisors:
        if action == "stop":
            supervisor.stop()
        elif action == "restart":
            supervisor.restart()
        else:
            supervisor.start()
    # A person who starts a server wants to know whether it starts. With credentials per caller, a caller's call starts it.
    if action != "stop" and provider.by_owner is None:
        with anyio.move_on_after(READY_S):
            await provider.supervisor.ensure_ready()


def _find_server(servers: Servers, name: str) -> ServerProvider:
    known = servers.providers
    if (provider := known.get(name)) is not None:
        return provider
    near = nearest_name(name[:128], known)
    hint = f"did you mean `{near}`?" if near else "`toolpost servers` lists all of them"
    raise NotFound(f"Unknown server `{name[:128]}`.", hint=hint, server=name[:128], nearest=[near] if near else [])
