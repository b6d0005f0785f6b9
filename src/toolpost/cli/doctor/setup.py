"""Checks of the environment: Python, the configuration, the store, credentials and the plugins."""

import os
import platform
import shutil
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import msgspec
from anyio import to_thread

from toolpost.app.callers import read_callers
from toolpost.app.quiet import open_quiet_app, without_store
from toolpost.audit import AuditFilter
from toolpost.base.version import __version__
from toolpost.cli.doctor.parts import CheckedDoctor, check_tables
from toolpost.cli.doctor.tools import findings_of_tools, has_output_schema
from toolpost.contracts.compatibility import Definition
from toolpost.contracts.errors import BadConfiguration, ErrorCode, OperatorError, ToolpostError
from toolpost.credentials.keys import KeyFile, KeyPlace
from toolpost.credentials.login_flow import is_pending_login
from toolpost.credentials.vault import Vault
from toolpost.endpoints.auth.access import check_exposure, find_proxy_setting
from toolpost.manifest import bundled_plugins
from toolpost.providers.loaded_plugin import LoadedPlugin
from toolpost.providers.server_provider import ServerProvider
from toolpost.settings import CONFIG_NAME, Config, is_trustworthy
from toolpost.settings.key_place import key_place_of
from toolpost.settings.network import NetworkSettings
from toolpost.settings.section import find_idle_sections
from toolpost.store import Store, open_store, shown_url, store_exists
from toolpost.store.audit import AuditLog
from toolpost.terminal.failures import suggest
from toolpost.terminal.findings import Diagnosis, Group, is_installed, note, ok, pluralize, problem, warning
from toolpost.terminal.options import describe_unused_client_file, find_unused_client_file

VERIFY_S: Final = 10.0
"""Time limit of verifying the audit; `toolpost audit verify` has none."""

_CALLS: Final = 1_000

_EXTRAS: Final = {
    "postgres": (("asyncpg",), "a store in PostgreSQL"),
    "keychain": (("keyring",), "secrets in the keychain of the system"),
}
"""Optional extras of the kernel: modules that show that an extra is installed, and what it is for."""


async def check_setup(config: Config, config_path: Path | None, doctors: Sequence[CheckedDoctor]) -> Group:
    """Check the environment of the kernel and its parts."""
    findings = [*_check_platform(), *_check_configuration(config, config_path), *await _check_store(config)]
    findings += _check_exports(config)
    for doctor in doctors:
        findings += await doctor.check_setup(config)
    return Group(kind="toolpost", name=__version__, findings=tuple(findings))


def _check_platform() -> Iterator[Diagnosis]:
    yield ok("python", f"Python {platform.python_version()}, {_format_version('mcp')}, on {platform.system()}")
    if sys.platform != "win32":
        loop = _format_version("uvloop")
        is_there = not loop.endswith("missing")
        yield ok("uvloop", loop) if is_there else warning("uvloop", loop, hint="pip install uvloop, for faster calls")
    for extra, (modules, what) in _EXTRAS.items():
        if not all(map(is_installed, modules)):
            yield note("extras", f"not installed: {what}; to add it: pip install 'toolpost[{extra}]'")
    if missing := [name for name in ("npx", "uvx", "docker") if shutil.which(name) is None]:
        yield note("launchers", f"not on PATH: {', '.join(missing)}; servers that need them cannot be started")


def _format_version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} is missing"


def _check_configuration(config: Config, config_path: Path | None) -> Iterator[Diagnosis]:
    path = config_path or Path(CONFIG_NAME)
    if path.exists():
        yield ok("configuration", f"{path}: {pluralize(len(config.servers), 'server')}")
    else:
        yield note("configuration", f"there is no {CONFIG_NAME} here: defaults are used")
        if (found := find_unused_client_file(config_path)) is not None:
            yield note("client-file", describe_unused_client_file(found))
    for error in find_idle_sections(config).values():
        yield problem("configuration", error)
    try:
        host, _ = config.address
        is_open = read_callers(config).is_open
        check_exposure(host, is_open=is_open)
        http = config.http
        setting = find_proxy_setting(allowed_hosts=http.allowed_hosts, trusted_proxies=http.trusted_proxies)
        if is_open and setting is not None:
            yield warning(
                "access",
                f"{setting} says that there is a proxy, and no token is required: everyone who can reach it may call "
                "every tool",
                hint="set TOOLPOST_TOKEN (or http.token, or [callers.NAME])",
            )
    except ToolpostError as error:
        yield problem("access", error)
    yield from _check_network(config)
    yield from _unused_tags(config)


def _check_network(config: Config) -> Iterator[Diagnosis]:
    """Check `[network]`, which is otherwise met by the first connection to a model, a peer or an authorization server."""
    if config.network == NetworkSettings():
        return
    try:
        network = config.resolve_network()
        network.make_ssl_context()
        proxy = network.find_proxy("https://toolpost.invalid")
    except (ToolpostError, ImportError) as error:
        yield problem("network", error if isinstance(error, ToolpostError) else str(error))
        return
    # Without what may stand before the host: a password.
    yield ok("network", f"connections go through {urlsplit(proxy).hostname}" if proxy else "certificates can be read")


def _unused_tags(config: Config) -> Iterator[Diagnosis]:
    """Warn about limits by tags that no server or plugin has: mostly a misspelled tag."""
    known_tags = {tag for server in config.servers.values() for tag in server.tags}
    known_tags |= {tag for tags in config.plugins.tags.values() for tag in tags}
    limits = {"http": config.http.tags, "stdio": config.stdio.tags}
    limits |= {f"callers.{name}": caller.tags for name, caller in config.callers.items()}
    for place, tags in limits.items():
        for tag in sorted(set(tags or ()) - known_tags):
            hint = suggest(tag, sorted(known_tags), "set `tags` of a server, or plugins.tags")
            yield warning("access", f"{place}.tags: no server or plugin has the tag `{tag}`", hint=hint)


async def _check_store(config: Config) -> list[Diagnosis]:
    file = _file_of(config)
    if file is not None and not file.exists():
        return [_check_new_store(file)]
    try:
        if config.store_url != "sqlite::memory:" and not await store_exists(config.store_url):
            return [ok("store", f"there is no store at {shown_url(config.store_url)} yet; the database can be reached")]
        async with open_store(config.store_url) as store:
            credentials = await check_credentials(config, store)
            tables = await check_tables(config, store)
            return [*_check_writable(file), await _verify_audit(store.audit), *credentials, *tables]
    except ToolpostError as error:
        return [problem("store", error)]


def _check_exports(config: Config) -> Iterator[Diagnosis]:
    """Check the settings of every destination, and whether what is removed is kept anywhere. Sends nothing."""
    for name, export in config.export.items():
        try:
            export.resolve(name, Path(config.project))
        except BadConfiguration as error:
            yield problem("export", error)
            continue
        address = shown_url(export.url)
        if export.headers and not is_trustworthy(export.url):
            hint = "use an https:// URL"
            yield warning("export", f"`{name}`: its headers are sent to {address} without encryption", hint=hint)
        else:
            yield ok("export", f"`{name}`: {export.kind}, {export.path or address}")
    limits = config.audit.resolve_retention(Path(config.project))
    if limits.is_limited and limits.archive is None and not config.export:
        hint = "set audit.archive to a folder, or [export.NAME], if it is to be kept elsewhere"
        yield warning("retention", "old audit entries are removed, and kept nowhere else", hint=hint)


def _file_of(config: Config) -> Path | None:
    scheme, _, path = config.store_url.partition(":")
    return Path(path).expanduser() if scheme == "sqlite" and path != ":memory:" else None


def _check_new_store(file: Path) -> Diagnosis:
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    if os.access(folder, os.W_OK):
        return ok("store", f"there is no store at {file} yet; it can be created")
    return problem(
        "store", f"the store cannot be created: {folder} is not writable", hint="set store.url to a writable place"
    )


def _check_writable(file: Path | None) -> Iterator[Diagnosis]:
    if file is not None and not (os.access(file, os.W_OK) and os.access(file.absolute().parent, os.W_OK)):
        yield problem(
            "store", f"the store at {file} is not writable", hint="make it writable: every call is recorded there"
        )


async def _verify_audit(audit: AuditLog) -> Diagnosis:
    with anyio.move_on_after(VERIFY_S):
        verdict = await audit.verify()
        if verdict.is_empty:
            return ok("audit", "the store is writable; no calls are recorded yet")
        if verdict.is_intact:
            return ok("audit", f"the store is writable; all {verdict.checked} audit entries are intact")
        return problem(
            "audit",
            f"audit entry {verdict.broken_seq} was changed: {verdict.reason}",
            hint="run `toolpost audit verify` for details",
        )
    return note("audit", f"the audit is too long to be verified in {VERIFY_S:g} s; run `toolpost audit verify`")


async def with_results_seen(groups: Sequence[Group], config: Config) -> list[Group]:
    """Add the recorded results that violated their output schema to each group."""
    broken = await _broken_results(config)
    shown = []
    for group in groups:
        own = {tool for tool in broken if tool.startswith(f"{group.name}__") and group.kind != "toolpost"}
        findings = tuple(_describe_broken_results(tool, broken.pop(tool), group) for tool in sorted(own))
        shown.append(replace(group, findings=(*group.findings, *findings)))
    if broken and shown and shown[0].kind == "toolpost":
        # Tools of servers and plugins that are no longer configured.
        others = tuple(_describe_broken_results(tool, count) for tool, count in sorted(broken.items()))
        shown[0] = replace(shown[0], findings=(*shown[0].findings, *others))
    return shown


async def _broken_results(config: Config) -> Counter[str]:
    file = _file_of(config)
    if file is not None and not file.exists():
        return Counter()
    broken = AuditFilter(code=ErrorCode.OUTPUT_VALIDATION_FAILED, last=_CALLS)
    try:
        async with open_store(config.store_url) as store:
            return Counter(record.entry.tool for record in await store.audit.entries(broken, limit=_CALLS))
    except ToolpostError:
        return Counter()  # a store that cannot be opened is a finding of its own


def _describe_broken_results(tool: str, count: int, group: Group | None = None) -> Diagnosis:
    found = warning(
        "results-broken",
        f"`{tool}` violated its own output schema in {pluralize(count, 'recorded call')}",
        hint=f"`toolpost audit --tool {tool} --code OUTPUT_VALIDATION_FAILED` lists them",
    )
    return replace(found, tool=tool.removeprefix(f"{group.name}__")) if group else found


async def check_plugins(config: Config, doctors: Sequence[CheckedDoctor]) -> list[Group]:
    """Load and start every plugin, and check its tools."""
    sound = config
    for doctor in doctors:
        sound = doctor.without_faults(sound)
    # Those are problems of the setup.
    in_use = {name: value for name, value in sound.parts.items() if name not in find_idle_sections(sound)}
    alone = msgspec.structs.replace(without_store(sound), servers={}, parts=in_use)
    if find_idle_sections(alone):
        return []
    taken = [name for name, server in config.servers.items() if server.enabled and name in bundled_plugins()]
    disable = [*config.plugins.disable, *taken]
    alone = msgspec.structs.replace(alone, plugins=msgspec.structs.replace(config.plugins, disable=disable))
    async with open_quiet_app(alone, enforces_lock=False) as app:
        found = [_check_plugin(plugin, config) for plugin in app.plugins.plugins if plugin.name not in taken]
        return found + [_check_server_object(provider) for provider in app.servers.providers.values()]


def _check_server_object(provider: ServerProvider) -> Group:
    """Check a server object that `plugins.load` names, which has been started."""
    tools, report = list(provider.tools.values()), provider.report()
    if provider.definitions is None:
        findings = [problem("start", report.last_error or "it did not start", hint=report.hint)]
    else:
        findings = [ok("start", f"started; {len(tools)} {'tool' if len(tools) == 1 else 'tools'}")]
        findings += findings_of_tools(tools, provider.refused)
    facts = {"version": provider.build, "tools": len(tools), "refused": len(provider.refused)}
    seen = tuple(map(Definition.from_contract, provider.contracts))
    return Group(kind="plugin", name=provider.name, findings=tuple(findings), facts=facts, definitions=seen)


def _check_plugin(plugin: LoadedPlugin, config: Config) -> Group:
    source = plugin.provider
    findings: list[Diagnosis] = []
    if plugin.state == "disabled":
        findings.append(note("disabled", "disabled: it is in plugins.disable"))
    refused = source.refused if source else ()
    reported = {refusal.message for refusal in refused}
    # A problem of a tool ends with the file and the line of its function.
    findings += [problem("start", text) for text in plugin.problems if not text.startswith(tuple(reported))]
    tools = list(source.tools.values()) if source else []
    if source is not None:
        count, promised = len(tools), sum(map(has_output_schema, tools))
        if plugin.state != "failed":
            text = f"{count} {'tool' if count == 1 else 'tools'}, {promised} with an output schema"
            findings.insert(0, ok("start", f"loaded; {text}"))
        findings += findings_of_tools(tools, refused)
        if plugin.name in config.servers:
            findings.append(problem("name-taken", "a server has this name too", hint="rename the server"))
    facts = {"version": plugin.version, "tools": len(tools), "refused": len(refused)}
    seen = tuple(Definition.from_contract(tool.contract) for tool in tools)
    return Group(kind=plugin.kind, name=plugin.name, findings=tuple(findings), facts=facts, definitions=seen)


async def check_credentials(config: Config, store: Store) -> list[Diagnosis]:
    """Check that the key decrypts what is stored, that only its owner can read it, and that each value belongs to a server."""
    try:
        place = key_place_of(config)
        await to_thread.run_sync(place.read)
        stored = [one for one in await Vault(store, place).list() if not is_pending_login(one.name)]
    except OperatorError as error:
        return [problem("credentials", error)]
    if not stored:
        return []
    findings = list(_check_key_file(place))
    unreadable = [one for one in stored if not one.is_readable]
    if unreadable:
        names = ", ".join(sorted({one.server for one in unreadable}))
        findings.append(
            problem(
                "credentials",
                f"{pluralize(len(unreadable), 'credential')} cannot be decrypted with the key in {place.shown}: of {names}",
                hint="use the key with which they were stored, or set them again",
            )
        )
    else:
        findings.append(
            ok("credentials", f"{pluralize(len(stored), 'credential')}, encrypted with the key in {place.shown}")
        )
    if unknown := sorted({one.server for one in stored} - set(config.servers)):
        findings.append(
            note("credentials", f"there are credentials for servers that are not configured: {', '.join(unknown)}")
        )
    return findings


def _check_key_file(place: KeyPlace) -> Iterator[Diagnosis]:
    if os.name != "posix" or not isinstance(place, KeyFile):
        return
    mode = stat.S_IMODE(place.path.stat().st_mode) if place.path.exists() else 0o600
    if mode & 0o077:
        yield warning(
            "credentials",
            f"the key in {place.shown} can be read by other users of this machine",
            hint=f"chmod 600 {place.shown}",
        )
