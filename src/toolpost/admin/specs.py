"""The servers of a configuration, as the gateway opens them."""

import math

from toolpost.contracts.errors import BadConfiguration
from toolpost.providers.plugins import Plugins
from toolpost.settings import Config
from toolpost.settings.callers import TEST_TAG
from toolpost.settings.masking import find_secrets, make_concealer
from toolpost.upstreams.spec import ServerSpec


def specs_of(config: Config, host: Plugins) -> list[ServerSpec]:
    """Read the servers out of the configuration; a name can be a plugin's or a server's, not both's."""
    is_test = config.modes.mode == "test"
    # Started with the gateway and never idle, as a plugin is: its author's lifespan is that of the process.
    in_process = [
        ServerSpec(name=name, in_process=server, tags=host.tags_of(name), min_ready=1, idle_s=math.inf)
        for name, server in host.servers.items()
        if not is_test or TEST_TAG in host.tags_of(name)
    ]
    if config.plugins.chosen:
        return in_process
    specs = [
        _spec_of(config, name)
        for name, server in config.servers.items()
        # A server that the mode does not use is not started either.
        if server.enabled and (not is_test or TEST_TAG in server.tags)
    ]
    taken = {plugin.name for plugin in host.plugins if plugin.provider is not None} | host.servers.keys()
    if clashes := sorted(spec.name for spec in specs if spec.name in taken):
        raise BadConfiguration(
            f"servers.{clashes[0]}: a plugin has this name already.",
            hint=f'rename the server, or disable the plugin: plugins.disable = ["{clashes[0]}"]',
        )
    return [*in_process, *specs]


def _spec_of(config: Config, name: str) -> ServerSpec:
    """Read one server; one whose variables cannot be filled in is there too, and says so instead of starting."""
    try:
        resolved = config.resolve_server(name)
    except BadConfiguration as error:
        settings = config.servers[name]
        return ServerSpec(
            name=name,
            command=(settings.command,) if settings.command is not None else None,
            url=settings.url,
            transport=settings.transport,
            tags=frozenset(settings.tags),
            problem=error.message.removesuffix("."),
            hint=error.hint,
        )
    return ServerSpec(**vars(resolved), conceal=make_concealer(resolved), secrets=tuple(find_secrets(resolved)))
