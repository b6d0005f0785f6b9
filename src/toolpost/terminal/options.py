"""Options that several commands share, and the configuration that they modify."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from toolpost.contracts.errors import BadConfiguration
from toolpost.manifest import bundled_plugins
from toolpost.settings import CONFIG_NAME, Config, load_config
from toolpost.settings.client_files import read_client_file
from toolpost.settings.model import check_bundled, parse_address
from toolpost.terminal.failures import tell

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

config_option: Decorator = click.option(
    "--config",
    "config_path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Configuration file, or an MCP client's own (default: toolpost.toml in this folder, if it exists).",
)

_WITH: Final = "toolpost.bundled"
_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _note_bundled(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> None:
    try:
        check_bundled(names, "--with")
    except BadConfiguration as error:
        message = f"{error.message.removeprefix('--with: ').removesuffix('.')}; {error.hint}"
        raise click.BadParameter(message, context, parameter) from error
    context.meta[_WITH] = names


def plugin_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--plugin` and `--with`; `load_cli_config` reads the latter from the click context."""
    command = click.option(
        "--with",
        multiple=True,
        metavar="NAME",
        expose_value=False,
        callback=_note_bundled,
        help=f"A plugin that comes with Toolpost: {', '.join(bundled_plugins())}; repeatable.",
    )(command)
    return click.option(
        "--plugin",
        "plugins",
        multiple=True,
        metavar="MODULE:ATTRIBUTE",
        help="A plugin, or a FastMCP or SDK server, to load besides the configured ones; a path works too; repeatable.",
    )(command)


url_option: Decorator = click.option(
    "--url", metavar="URL", help="URL of the gateway (default: http.listen of this configuration)."
)


def _note_debugging(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        # `--debug` may come before the command or after it.
        context.find_root().params["debug"] = True


debug_option: Decorator = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_note_debugging,
    help="Show the traceback of a failed tool, and every log event.",
)


def refuse_plugins_beside_url(url: str | None, plugins: tuple[str, ...]) -> None:
    """Raise a usage error for plugins with `--url`, where they would be ignored."""
    if url is not None and (plugins or click.get_current_context().meta.get(_WITH)):
        raise click.UsageError("--plugin and --with cannot be used with --url: a running gateway has its own plugins")


def named_plugins() -> frozenset[str]:
    """Return the plugins that this command line names, with `--plugin` and `--with`."""
    context = click.get_current_context(silent=True)
    if context is None:
        return frozenset()
    return frozenset((*context.params.get("plugins", ()), *context.meta.get(_WITH, ())))


def json_option(what: str) -> Decorator:
    """Add `--json`, passed to the command as `as_json`; `what` is its help."""
    return click.option("--json", "as_json", is_flag=True, help=what)


def load_cli_config(
    path: Path | None,
    plugins: tuple[str, ...] = (),
    listen: str | None = None,
    mode: str | None = None,
    only: tuple[str, ...] = (),
) -> Config:
    """Load the configuration and apply the options to it."""
    config = load_config(path)
    if plugins and path is None and not Path(CONFIG_NAME).exists():
        # The bundled plugins are there so that a first run has a tool to try; `--plugin` brings one.
        config = msgspec.structs.replace(config, plugins=msgspec.structs.replace(config.plugins, bundled=[]))
    context = click.get_current_context(silent=True)
    bundled = context.meta.get(_WITH, ()) if context is not None else ()
    return apply_options(config, plugins=plugins, bundled=bundled, listen=listen, mode=mode, only=only)


def find_unused_client_file(config_path: Path | None = None) -> Path | None:
    """Return the `.mcp.json` of this folder if it has servers that are not used, as there is no toolpost.toml."""
    path = Path.cwd() / ".mcp.json"
    if config_path is not None or Path(CONFIG_NAME).exists() or not path.is_file():
        return None
    try:
        return path if read_client_file(path, folder=path.parent).servers else None
    except BadConfiguration:
        return path


def mention_unused_client_file(config_path: Path | None) -> None:
    """Write a note to stderr about a `.mcp.json` that is not used; none if the command line names its plugins."""
    if not named_plugins() and (found := find_unused_client_file(config_path)) is not None:
        tell("note", describe_unused_client_file(found), color="cyan")


def describe_unused_client_file(path: Path) -> str:
    ways = f"`--config {path.name}` uses them, `toolpost import --from {path.name}` adds them to {CONFIG_NAME}"
    return f"{path.name} is here, and its servers are not used: {ways}"


def apply_options(
    config: Config,
    *,
    plugins: tuple[str, ...] = (),
    bundled: tuple[str, ...] = (),
    listen: str | None = None,
    mode: str | None = None,
    only: tuple[str, ...] = (),
) -> Config:
    if plugins or bundled:
        loaded = msgspec.structs.replace(
            config.plugins,
            load=list(dict.fromkeys([*config.plugins.load, *plugins])),
            bundled=list(dict.fromkeys([*config.plugins.bundled, *bundled])),
        )
        config = msgspec.structs.replace(config, plugins=loaded)
    if only:
        # The few tools of chosen plugins need no search, even if the configuration has it for all.
        mode = mode or "all"
        config = msgspec.structs.replace(config, plugins=msgspec.structs.replace(config.plugins, only=list(only)))
    if listen is not None:
        parse_address(listen)
        config = msgspec.structs.replace(config, http=msgspec.structs.replace(config.http, listen=listen))
    if mode is not None:
        config = msgspec.structs.replace(config, discovery=msgspec.structs.replace(config.discovery, mode=mode))
    return config


class TimeParameter(click.ParamType[str]):
    """ISO 8601 (UTC unless it has an offset), or an age such as `30m`, `2h`, `7d`; becomes UTC as the audit writes it."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if found := _AGO.fullmatch(value.strip().lower()):
            moment = datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: float(found[1])})
        else:
            try:
                moment = datetime.fromisoformat(value.strip())
            except ValueError:
                self.fail(f"`{value}` is not a time; write 2026-03-01T12:00, or 2h for two hours ago", param, ctx)
        utc = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
