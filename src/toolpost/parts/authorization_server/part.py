"""The authorization server as a part: its section, its tables, its paths, its checks."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolpost.contracts import BadConfiguration
from toolpost.parts.authorization_server.settings import LOGIN, check_login, find_url, read_client_secret
from toolpost.settings import make_idle

if TYPE_CHECKING:
    from toolpost.endpoints.http import HttpContext, Routes
    from toolpost.parts import Host
    from toolpost.settings import Config

KEY = "login provider"


def is_required(config: "Config") -> bool:
    """Without it no one could log in, and a gateway without other callers would accept every request."""
    return LOGIN.of(config).enabled is True


def find_idle(config: "Config") -> Iterator[tuple[str, BadConfiguration]]:
    """Find settings for logins where nothing says that there are any, or none: `enabled = false` turns them off knowingly."""
    if LOGIN.of(config).enabled is not None:
        return
    hint = "set login.enabled to true, or to false to keep it for later"
    if LOGIN.of(config) != LOGIN.default:
        yield make_idle("login", "login.enabled is not set", hint)
    # The passphrase of a caller also proves who votes at the command line.
    if "approvals" in config.parts or "approvals" in config.plugins.bundled:
        return
    for name, caller in config.callers.items():
        if caller.has_passphrase:
            yield make_idle(f"callers.{name}.passphrase_hash", "no one can log in here", hint)


@asynccontextmanager
async def open_authorization_server(host: "Host") -> AsyncIterator[Sequence[object]]:
    """Bring the authorization server."""
    settings = LOGIN.of(host.config)
    if not settings.enabled:
        yield ()
        return
    check_login(host.config)
    import anyio

    from toolpost.parts import Api, Background, Service
    from toolpost.parts.authorization_server.api import routes_of
    from toolpost.parts.authorization_server.clients import Clients
    from toolpost.parts.authorization_server.provider import OpenIdProvider
    from toolpost.parts.authorization_server.routes import LoginRoutes
    from toolpost.parts.authorization_server.server import AuthorizationServer

    url, network = find_url(host.config), host.config.resolve_network()
    clients = Clients(host.store, url=url, takes_documents=settings.client_documents, network=network)
    key = await host.store.keys.of(KEY)
    server = AuthorizationServer(host.store, clients, settings, url=url, key=key)
    provider = None
    if settings.provider.issuer:
        provider = OpenIdProvider(settings.provider, read_client_secret(host.config), url=url, key=key, network=network)
        server.people = provider

    @asynccontextmanager
    async def run() -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.follow_revocations)
            yield
            tasks.cancel_scope.cancel()

    def make_routes(http: "HttpContext") -> "Sequence[Routes]":
        trusted = host.config.http.trusted_networks
        login = LoginRoutes(http, server, settings, host.store, provider, trusted_proxies=trusted)
        return [login, routes_of(http, server, host.store)]

    yield [server, Api(make_routes), Service(server), Background(run)]
