"""The options that commands share, and the configuration they make."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from toolpost.contracts.errors import BadConfiguration
from toolpost.plugins import BUNDLED
from toolpost.settings import CONFIG_NAME, Config, load_config, parse_address
from toolpost.settings.model import check_bundled

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

config_option: Decorator = click.option(
    "--config",
    "config_path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Configuration file, or a client's as it is (default: toolpost.toml here, if there is one).",
)

_WITH: Final = "toolpost.bundled"


def _note_bundled(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> None:
    try:
        check_bundled(names, "--with")
    except BadConfiguration as error:
        told = f"{error.message.removeprefix('--with: ').removesuffix('.')}; {error.hint}"
        raise click.BadParameter(told, context, parameter) from error
    context.meta[_WITH] = names


def plugin_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--plugin`, and `--with`, which `configured` finds by itself."""
    command = click.option(
        "--with",
        multiple=True,
        metavar="NAME",
        expose_value=False,
        callback=_note_bundled,
        help=f"A plugin that comes with Toolpost: {', '.join(BUNDLED)}; repeatable.",
    )(command)
    return click.option(
        "--plugin",
        "plugins",
        multiple=True,
        metavar="MODULE:ATTRIBUTE",
        help="A plugin to load beside those that are configured; repeatable.",
    )(command)


url_option: Decorator = click.option(
    "--url", metavar="URL", help="Where the gateway is (default: where this configuration has it listen)."
)


def _note_debugging(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        # There is one `--debug`, before the command or behind it.
        context.find_root().params["debug"] = True


debug_option: Decorator = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_note_debugging,
    help="Show the traceback of a tool that fails, and every log event.",
)


def refuse_plugins_beside_url(url: str | None, plugins: tuple[str, ...]) -> None:
    """Refuse options that would be ignored: a gateway that runs has its own plugins."""
    if url is not None and (plugins or click.get_current_context().meta.get(_WITH)):
        raise click.UsageError("--url goes with a gateway that runs, --plugin and --with with one that is opened here")


def json_option(what: str) -> Decorator:
    """Make a `--json` that says what it prints."""
    return click.option("--json", "as_json", is_flag=True, help=what)


def configured(
    path: Path | None,
    plugins: tuple[str, ...] = (),
    listen: str | None = None,
    mode: str | None = None,
    only: str | None = None,
) -> Config:
    """Read the configuration and put the options on top."""
    config = load_config(path)
    if plugins and path is None and not Path(CONFIG_NAME).exists():
        # Whoever names a plugin has configured something: nothing of ours is needed to have a tool to try.
        config = msgspec.structs.replace(config, plugins=msgspec.structs.replace(config.plugins, bundled=[]))
    context = click.get_current_context(silent=True)
    bundled = context.meta.get(_WITH, ()) if context is not None else ()
    return on_top(config, plugins=plugins, bundled=bundled, listen=listen, mode=mode, only=only)


def on_top(
    config: Config,
    *,
    plugins: tuple[str, ...] = (),
    bundled: tuple[str, ...] = (),
    listen: str | None = None,
    mode: str | None = None,
    only: str | None = None,
) -> Config:
    """Put options on top of a configuration."""
    if plugins or bundled:
        loaded = msgspec.structs.replace(
            config.plugins,
            load=[*config.plugins.load, *plugins],
            bundled=list(dict.fromkeys([*config.plugins.bundled, *bundled])),
        )
        config = msgspec.structs.replace(config, plugins=loaded)
    if only is not None:
        # One plugin's few tools are listed as they are, whatever is done with the rest.
        mode = mode or "all"
        config = msgspec.structs.replace(config, plugins=msgspec.structs.replace(config.plugins, only=only))
    if listen is not None:
        parse_address(listen)
        config = msgspec.structs.replace(config, http=msgspec.structs.replace(config.http, listen=listen))
    if mode is not None:
        config = msgspec.structs.replace(config, discovery=msgspec.structs.replace(config.discovery, mode=mode))
    return config


def own_url(config: Config, *, hint: str = "set a port") -> str:
    """Return where a gateway of this configuration is reached from here, without a path."""
    host, port = config.address
    if port == 0:
        raise BadConfiguration("http.listen takes a free port each time, which no client can know.", hint=hint)
    # What listens everywhere is reached here.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (compared, not bound)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_debugging() -> bool:
    """Say whether `--debug` or TOOLPOST_DEBUG was given."""
    context = click.get_current_context(silent=True)
    return bool(context and context.find_root().params.get("debug"))
