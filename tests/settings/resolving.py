"""All enabled servers of a configuration, with their variables replaced."""

from collections.abc import Mapping

from toolpost.settings import Config
from toolpost.settings.servers import ResolvedServer


def resolve_servers(config: Config, environment: Mapping[str, str] | None = None) -> dict[str, ResolvedServer]:
    """Raises `BadConfiguration` for a variable that is not set."""
    return {name: config.resolve_server(name, environment) for name, server in config.servers.items() if server.enabled}
