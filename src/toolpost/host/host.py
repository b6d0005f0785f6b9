"""What a part is given when it opens. Authors of parts import this from `toolpost.parts`.

A part is a product of its own on top of the kernel: the bus, the code index, conversations, or one of another
package. It is found by its entry point in the group `toolpost.parts`. The kernel knows no part by name.

The order in which a gateway opens, and closes in reverse:

1. the store
2. each part: its migrations are applied, and `part.open(host)` yields its contributions (`contributions.py`)
3. the plugins of all parts, then the servers; then the gateway, made with the middleware and guards of parts: `host.gateway`
4. the `Background` of each part: from here on tools can be called
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolpost.base.caller import Caller, Principal
from toolpost.base.ids import CallerId, Json
from toolpost.credentials.pending_logins import Logins
from toolpost.endpoints.auth.delegated_tokens import DelegatedTokens
from toolpost.fairness import Callers
from toolpost.gateway import Gateway
from toolpost.metrics import Metrics
from toolpost.protocol.rpc import encode
from toolpost.providers.plugins import Plugins
from toolpost.settings import Config
from toolpost.store import Store
from toolpost.upstreams.notifications import LOG_MESSAGE, Notification


class Notifications:
    """Sends log messages of plugins to clients."""

    def __init__(self, note: Callable[[Notification], None], tags: Mapping[str, Iterable[str]]) -> None:
        """Take what passes notifications on, and the tags of plugins: a client hears of what it sees."""
        self._note = note
        self._tags = tags

    def log(self, plugin: str, level: str, data: Json, *, caller: CallerId | None = None) -> None:
        """Send a log message of a plugin to clients that see it and want messages of this level, as in `"warning"`.

        To those of `caller`; without one, to those that may see everything. Clients of the stateless era keep no session, and
        hear nothing between their requests.
        """
        params = encode({"level": level, "logger": plugin, "data": data})
        tags = frozenset(self._tags.get(plugin, ()))
        self._note(Notification(server=plugin, key="", method=LOG_MESSAGE, params=params, caller=caller, tags=tags))


@dataclass(kw_only=True)
class Host:
    """What a part is given when it opens."""

    config: Config
    """All settings; a part reads its own with its `Section`."""
    store: Store
    """Scripts (transactions), key-values, wake-ups, keys, the clock."""
    plugins: Plugins
    """Where plugins are, to run their hooks. They are loaded after all parts have opened."""
    metrics: Metrics
    """Takes counters."""
    callers: Callers
    """Who shares the gateway, for fair shares of what a part limits."""
    tokens: DelegatedTokens
    """Tokens by which a process of the part reaches this gateway in the name of a caller."""
    notifications: Notifications
    """Sends log messages of plugins to clients."""
    config_path: Path | None = None
    """The file that the settings were read from, or would be if it were there; None if a program gave them."""
    principal_of: Callable[[Caller], Principal | None]
    """Returns a caller with the limits that hold for it now; None if it may no longer call."""
    loads_bundled: bool = True
    """Whether plugins that come with Toolpost are loaded at all; tests of a plugin leave them out."""
    for_one_command: bool = False
    """Whether the gateway is open for a single command: nothing needs to be watched or prepared for later."""
    _gateway: Gateway | None = field(default=None, init=False)
    _logins: Logins | None = field(default=None, init=False)

    @property
    def gateway(self) -> Gateway:
        """The gateway, to call tools. It is made after all parts have opened: `RuntimeError` before."""
        if self._gateway is None:
            raise RuntimeError("The gateway is not open yet: use `host.gateway` in a Background, a guard or a handler.")
        return self._gateway

    @property
    def logins(self) -> Logins:
        """Where people log in at servers, and at what a part names in `LoginTargets`; there when the gateway is."""
        if self._logins is None:
            raise RuntimeError("The gateway is not open yet: use `host.logins` in a Background or a tool.")
        return self._logins

    def set_gateway(self, gateway: Gateway, logins: Logins) -> None:
        """Set the gateway, once. It is made with what parts contribute, so parts cannot have it when they open."""
        assert self._gateway is None
        self._gateway, self._logins = gateway, logins

    def wants_plugin(self, name: str) -> bool:
        """Whether a bundled plugin is among those to load: named by `plugins.bundled`, or perhaps to be served alone."""
        plugins = self.config.plugins
        return self.loads_bundled and (name in plugins.bundled or bool(plugins.chosen))
