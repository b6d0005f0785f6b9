"""A plugin that a command serves by itself: nothing is stored, and no other plugin or server is opened."""

from contextlib import AbstractAsyncContextManager

from toolpost.app import open_app, serve_on_stdio
from toolpost.authoring import Plugin
from toolpost.cli.serve import Stop
from toolpost.endpoints.stdio import StdioStreams
from toolpost.settings import Config
from toolpost.settings.model import PluginSettings, StoreSettings
from toolpost.terminal.event_loop import run_async
from toolpost.terminal.failures import is_debugging
from toolpost.terminal.logging import set_up_logging
from toolpost.terminal.signals import on_signals


def serve_plugin(plugin: Plugin, *, log_level: str, while_serving: AbstractAsyncContextManager[None]) -> None:
    """Serve the tools of a plugin, under their bare names, to the client that started this process, on stdin and stdout.

    Returns when the client closes its end, or on a signal; `while_serving` is open until then.
    """
    set_up_logging("debug" if is_debugging() else log_level)
    # Before anything else can write to stdout, which is the client's.
    run_async(_serve, plugin, StdioStreams(), while_serving)


async def _serve(plugin: Plugin, streams: StdioStreams, while_serving: AbstractAsyncContextManager[None]) -> None:
    config = Config(
        store=StoreSettings(url="sqlite::memory:"), plugins=PluginSettings(only=plugin.name, installed=False)
    )
    stop = Stop()
    with on_signals(stop.request_stop):
        async with while_serving, open_app(config, plugins=[plugin], bundled=False, servers=[]) as app:
            stop.app = app
            await serve_on_stdio(app, streams, stop.event)
