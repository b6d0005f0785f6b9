"""The gateway as a part sees it. Authors of parts import this from `toolpost.parts`.

A part is a product of its own on top of the kernel: the bus, the code index, conversations, or one of another package. A bundled
part is found by its folder, one of another package by its entry point in the group `toolpost.parts`. The kernel knows no part by
name.

The order in which a gateway opens, and closes in reverse:

1. the store
2. each part: its migrations are applied, and the function that its manifest names (`Part.opens`) gets the host and yields
   contributions (`contributions.py`)
3. the plugins of all parts, then the servers; then the gateway, made with the middleware and guards of parts: `host.gateway`
4. the `Background` of each part: from here on tools can be called
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from toolpost.base.caller import Caller, GatewayAccess, Principal, Scope
from toolpost.base.log_files import LogFiles
from toolpost.credentials.caller_credentials import CallerCredentials
from toolpost.credentials.gateway_logins import GatewayLogins
from toolpost.credentials.server_tokens import ServerTokens
from toolpost.credentials.vault import Vault
from toolpost.fairness import Callers
from toolpost.gateway import Gateway
from toolpost.metrics import Metrics
from toolpost.providers.plugins import HookImplementation, Plugins
from toolpost.settings import Config
from toolpost.settings.key_place import key_place_of
from toolpost.store import Store


@dataclass(kw_only=True)
class Host:
    """The gateway as a part sees it, from its opening on."""

    config: Config
    """All settings; a part reads its own with its `Section`."""
    store: Store
    """Scripts (transactions), key-values, wake-ups, keys, the clock."""
    plugins: Plugins
    """Where plugins are. They are loaded after all parts have opened."""
    metrics: Metrics
    """Takes counters."""
    callers: Callers
    """Who shares the gateway, for fair shares of what a part limits."""
    token_for: Callable[[Caller, Sequence[Scope]], AbstractContextManager[GatewayAccess | None]]
    """Lends a token by which a process of the part reaches this gateway as a caller; None while HTTP is not served."""
    config_path: Path | None = None
    """The file that the settings were read from, or would be if it were there; None if a program gave them."""
    principal_of: Callable[[Caller], Principal | None]
    """Returns a caller with the limits that hold for it now; None if it may no longer call."""
    loads_bundled: bool = True
    """Whether plugins that come with Toolpost are loaded at all; tests of a plugin leave them out."""
    for_one_command: bool = False
    """Whether the gateway is open for a single command: nothing needs to be watched or prepared for later."""
    _gateway: Gateway | None = field(default=None, init=False)
    _logins: GatewayLogins | None = field(default=None, init=False)

    @property
    def gateway(self) -> Gateway:
        """The gateway, to call tools. It is made after all parts have opened: `RuntimeError` before."""
        if self._gateway is None:
            raise RuntimeError("The gateway is not open yet: use `host.gateway` in a Background, a guard or a handler.")
        return self._gateway

    @asynccontextmanager
    async def open_credentials(self) -> AsyncIterator[CallerCredentials]:
        """Open the credentials of callers for requests to what the part names in `LoginTargets`.

        Only an open gateway can ask callers to log in. Leaving waits for renewals of tokens in flight, for seconds at most.
        """
        server_tokens = ServerTokens(Vault(self.store, key_place_of(self.config)))
        try:
            yield CallerCredentials(server_tokens, self._find_logins)
        finally:
            await server_tokens.aclose()

    def _find_logins(self) -> GatewayLogins:
        if self._logins is None:
            raise RuntimeError("The gateway is not open yet: send requests in a Background or a tool.")
        return self._logins

    def set_gateway(self, gateway: Gateway, logins: GatewayLogins) -> None:
        """Set the gateway, once. It is made with what parts contribute, so parts cannot have it when they open."""
        assert self._gateway is None
        self._gateway, self._logins = gateway, logins

    @property
    def log_files(self) -> LogFiles | None:
        """The log on disk of all gateways of this project; None if none is kept."""
        folder = self.config.log_path if self.config.log.keep_mb else None
        return LogFiles(folder) if folder is not None else None

    def wants_plugin(self, name: str, *, is_needed: bool = False) -> bool:
        """Whether a bundled plugin is among those to load: named by `plugins.bundled`, or perhaps to be served alone.

        A plugin that its part needs as it is configured is loaded unasked, unless bundled plugins are left out altogether.
        """
        plugins = self.config.plugins
        return self.loads_bundled and (is_needed or name in plugins.bundled or bool(plugins.chosen))

    def find_hooks(self, name: str) -> Sequence[HookImplementation]:
        """Return the implementations of a hook that the part declares (`HookSpecs`), by plugins that are served."""
        return self.plugins.implementations(name)
