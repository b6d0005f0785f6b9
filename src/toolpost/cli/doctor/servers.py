"""Checks of servers: each is started in a gateway of its own, so that one cannot disturb another."""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from toolpost.app import open_app
from toolpost.app.open import OpenOptions
from toolpost.app.quiet import without_store
from toolpost.app.tool_states import list_skills
from toolpost.cli.doctor.tools import findings_of_tools, has_output_schema
from toolpost.contracts.compatibility import Definition
from toolpost.contracts.compatibility.definition import name_instructions
from toolpost.contracts.errors import BadConfiguration, CredentialRequired, LoginRequired, ToolpostError
from toolpost.protocol.era import STATELESS
from toolpost.providers.server_provider import ServerProvider
from toolpost.settings import Config, make_concealer
from toolpost.settings.model import PluginSettings
from toolpost.terminal.failures import as_clause
from toolpost.terminal.findings import Diagnosis, Group, note, ok, problem, warning
from toolpost.upstreams.report import ServerReport
from toolpost.upstreams.spec import ServerSpec

STDERR_LINES: Final = 5

LAUNCHERS: Final = {
    "npx": "install Node.js: https://nodejs.org",
    "npm": "install Node.js: https://nodejs.org",
    "node": "install Node.js: https://nodejs.org",
    "uvx": "install uv: https://docs.astral.sh/uv",
    "uv": "install uv: https://docs.astral.sh/uv",
    "docker": "install Docker: https://docs.docker.com/get-docker",
    "bunx": "install Bun: https://bun.sh",
    "deno": "install Deno: https://deno.com",
}

_RETRY_HINT: Final = re.compile(r"(?:; )?it may be started again in .*|the next call tries to start it again")


async def check_server(name: str, config: Config) -> Group:
    """Start a server, check its tools, and stop it."""
    if not config.servers[name].enabled:
        return Group(kind="server", name=name, findings=(note("disabled", "disabled: `enabled` is false"),))
    try:
        resolved = config.resolve_server(name)
    except BadConfiguration as error:
        return Group(kind="server", name=name, findings=(problem("configuration", error),))
    spec = replace(ServerSpec(**vars(resolved)), min_ready=0)
    if missing := missing_command(spec, place=f"servers.{name}.command"):
        return Group(kind="server", name=name, findings=(missing,))
    return await _check_started(spec, config)


async def _check_started(spec: ServerSpec, config: Config) -> Group:
    # Without the parts: what keeps one of them from opening is no fault of the server.
    alone = msgspec.structs.replace(
        without_store(config), plugins=PluginSettings(installed=False), servers={}, parts={}
    )
    conceal = make_concealer(spec)
    began = time.monotonic()
    options = OpenOptions(enforces_lock=False, credentials_of=config)
    async with open_app(alone, bundled=False, servers=[spec], options=options) as app:
        source = app.servers.providers[spec.name]
        try:
            await source.supervisor.ensure_ready()
        except (CredentialRequired, LoginRequired) as error:
            # Named callers have their own, which are not used for a check.
            found = warning("credentials", f"not started: {as_clause(error.message)}", hint=error.hint)
            level = found if spec.credentials == "caller" else problem("start", error)
            return Group(kind="server", name=spec.name, findings=(level,))
        except ToolpostError as error:
            return _describe_failure(spec.name, source.supervisor.report(), error, conceal)
        took_s = time.monotonic() - began
        report = source.supervisor.report()
        findings = [_describe_start(source, report, took_s), *_findings(source, report)]
        await list_skills([source], app.gateway.refusals)
    instructions = [source.define(name_instructions(source.name))] if source.profile.instructions else []
    return Group(
        kind="server",
        name=spec.name,
        findings=tuple(finding.mapped(conceal) for finding in findings),
        facts={
            "transport": report.transport,
            "version": report.version,
            "readyMs": round(took_s * 1_000),
            "tools": len(source.tools),
            "refused": len(source.refused),
            "withOutputSchema": sum(map(has_output_schema, source.tools.values())),
        },
        definitions=(
            *map(Definition.from_contract, source.contracts),
            *instructions,
            *source.skills.definitions.values(),
        ),
    )


def _describe_failure(name: str, report: ServerReport, error: ToolpostError, conceal: Callable[[str], str]) -> Group:
    # When the gateway would try again does not help to fix the server.
    hint = _RETRY_HINT.sub("", error.hint or "") or None
    lines = report.stderr_tail[-STDERR_LINES:]
    found = problem("start", f"does not start: {report.last_error or error.message}", hint=hint, lines=lines)
    return Group(kind="server", name=name, findings=(found.mapped(conceal),), facts={"transport": report.transport})


def _describe_start(source: ServerProvider, report: ServerReport, took_s: float) -> Diagnosis:
    promised = sum(map(has_output_schema, source.tools.values()))
    era = "stateless" if report.version == STATELESS.version else "handshake"
    count = len(source.tools)
    tools = f"{count} {'tool' if count == 1 else 'tools'}, {promised} with an output schema"
    return ok("start", f"ready in {took_s:.2f} s over {report.transport}; MCP {report.version} ({era} era); {tools}")


def _findings(source: ServerProvider, report: ServerReport) -> Iterator[Diagnosis]:
    if not source.definitions:
        yield warning("no-tools", "it has no tools")
    if report.protocol_errors:
        yield warning(
            "protocol-errors",
            "it sends messages that are not valid MCP",
            hint="a server on stdio must write only MCP messages to stdout, and logs to stderr",
        )
    yield from _unused_patterns(source)
    yield from findings_of_tools(source.tools.values(), source.refused)


def _unused_patterns(source: ServerProvider) -> Iterator[Diagnosis]:
    names = [str(definition.get("name")) for definition in source.definitions or ()]
    for key in ("allow", "deny"):
        for pattern in getattr(source.spec, key):
            if names and not any(fnmatchcase(name, pattern) for name in names):
                yield warning("pattern-unused", f"servers.{source.name}.{key}: `{pattern}` matches none of its tools")


def missing_command(spec: ServerSpec, *, place: str) -> Diagnosis | None:
    """Return a problem if the server's program cannot be found, else None."""
    if spec.command is None:
        return None
    name = spec.command[0]
    is_path = Path(name).name != name
    program = str(Path(spec.cwd or "", name)) if is_path else name
    if shutil.which(program, path=spec.env.get("PATH", os.environ.get("PATH", os.defpath))):
        return None
    hint = LAUNCHERS.get(name, f"install it, or set {place} to its full path")
    found = problem("command-missing", f"the command `{name}` was not found or is not executable", hint=hint)
    return found.mapped(make_concealer(spec))
