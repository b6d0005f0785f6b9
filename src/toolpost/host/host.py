"""What a part is given and what it provides. Authors of parts import this from `toolpost.parts`, with `part_base.Part`.

A part is a product of its own on top of the kernel: the bus, the code index, conversations, MCP tasks, or one of another
package. It is found by its entry point in the group `toolpost.parts`. The kernel knows no part by name.

The order in which a gateway opens, and closes in reverse:

1. the store
2. each part: its migrations are applied, and `part.open(host)` yields what it provides
3. the plugins of all parts, then the servers; then the gateway, made with the middleware that parts provide
4. `provided.run(gateway)` of each part: from here on tools can be called
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from toolpost.authoring import Plugin
from toolpost.authoring.middleware import Middleware, NamedMiddleware
from toolpost.base.attention import Attention
from toolpost.base.caller import Caller, Principal
from toolpost.base.ids import CallerId, Json
from toolpost.discovery.reranker import Complete
from toolpost.endpoints.auth.delegated_tokens import DelegatedTokens
from toolpost.endpoints.auth.roster import Admission, LoginServer
from toolpost.endpoints.calls import RequestObserver
from toolpost.endpoints.http.request import HttpRequest
from toolpost.endpoints.http.routes import HttpContext, Routes
from toolpost.endpoints.tasks import Tasks
from toolpost.fairness import Callers
from toolpost.gateway import AgentCallObserver, CallObserver, Gateway
from toolpost.metrics import Gauge, Gauges, Metrics
from toolpost.middleware import Call, Guard, ResultLimiter
from toolpost.protocol.rpc import encode
from toolpost.providers import Provider
from toolpost.providers.plugin_host import PluginCandidate, PluginHost
from toolpost.settings import Config
from toolpost.store import Store
from toolpost.upstreams.notifications import LOG_MESSAGE, Notification
from toolpost.upstreams.server_requests import Sampler
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.transport import Transport


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


@dataclass(frozen=True, kw_only=True)
class Host:
    """What a part is given when it opens."""

    config: Config
    """All settings; a part reads its own with its `Section`."""
    store: Store
    """Scripts (transactions), key-values, wake-ups, keys, the clock."""
    plugins: PluginHost
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
    is_brief: bool = False
    """Whether the gateway is open for a single command: nothing needs to be watched or prepared for later."""

    def wants_plugin(self, name: str) -> bool:
        """Whether a bundled plugin is among those to load: named by `plugins.bundled`, or perhaps to be served alone."""
        plugins = self.config.plugins
        return self.loads_bundled and (name in plugins.bundled or bool(plugins.chosen))


class Observer(CallObserver, RequestObserver, Protocol):
    """Sees all that passes: calls (`begin`, `end`), their requests (`describe`), and the requests below."""

    def observe_transport(self, transport: Transport, spec: ServerSpec, /) -> AbstractContextManager[Transport]:
        """Wrap the transport of an instance of a server, for as long as it is open."""
        ...

    async def observe_sdk(self, context: Any, call_next: Callable[[Any], Awaitable[Any]], /) -> Any:
        """Answer a request that is left to the SDK, by `call_next(context)`: middleware of the SDK's kind."""
        ...


@dataclass(frozen=True, kw_only=True)
class Provided:
    """What an open part brings. Everything is optional."""

    plugins: Sequence[Plugin | PluginCandidate] = ()
    derive: Callable[[Sequence[Provider]], Sequence[Provider]] | None = None
    """Takes the providers of all plugins and servers and returns those that the catalog is made of. Called again whenever their
    tools change, perhaps in a thread."""
    middleware: Sequence[Middleware] = ()
    """Runs around every call, within what is configured and around that of plugins. A part that cannot open brings none: what
    must never be left out belongs into `middleware.load`. One with an attribute `may_apply` is left out of the calls of tools for
    which that returns False, one with `applies_to_call` of the calls for which that does."""
    guards: Sequence[Guard] = ()
    """Decide whether calls may run, inside all middleware. A part that must not be left out raises BadConfiguration when it
    cannot open: then nothing serves."""
    routes: Callable[[HttpContext], Sequence[Routes]] | None = None
    """Makes the part's paths, when HTTP begins to be served: `JsonRoutes` for an API, `Pages` for files."""
    check_change: Callable[[HttpRequest, Admission], None] | None = None
    """Raises for a request to any part's API that would change something and may not."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """Paths of the part's pages for people, by title: other pages link to them."""
    attention: Callable[[Principal], Awaitable[Sequence[Attention]]] | None = None
    """Returns what of the part waits for a person, as far as a caller may know it: other pages list it."""
    welcome: Callable[[str], Awaitable[Sequence[str]]] | None = None
    """Returns lines that `toolpost serve` prints on stderr when it begins to serve HTTP, given its URL without a path.

    A secret may be in them only if stderr is a terminal."""
    gauges: Callable[[], Gauges] | None = None
    """What holds at this moment, for `/metrics`; counters are added to `host.metrics`."""
    observer: Observer | None = None
    """Is told of every request, of its way through the gateway, and of requests to servers: for telemetry. Without one, none of
    this costs anything."""
    on_recorded: Callable[[Call], None] | None = None
    """Told of each call when its audit entry is written, whatever its outcome; `call.queued_ns`, `locked_ns`, `checked_ns`,
    `answered_ns` and `recorded_ns` say when it reached each step. On the event loop, in the middle of a call: it must be quick,
    and must not raise."""
    conversations: AgentCallObserver | None = None
    """Notified of the calls that agents make in threads."""
    tasks: Tasks | None = None
    """Keeps calls that outlive their requests."""
    sampler: Sampler | None = None
    """Answers sampling requests of servers during calls whose client does not."""
    complete: Complete | None = None
    """Asks the models that `discovery.reranker` names."""
    logins: Mapping[str, ServerSpec] = field(default_factory=dict)
    """What people log in to besides servers, by name: `/login/NAME` and `toolpost login` are the same for it."""
    limiter: ResultLimiter | None = None
    """Makes large results smaller, in the answers of clients; results up to its `small_bytes` cost nothing."""
    companions: Sequence[Plugin] = ()
    """Those of `plugins` that every caller sees, on every path and in every scope: each must show a caller nothing but its own.
    What is annotated as read-only is limited to that all the same."""
    login: LoginServer | None = None
    """Issues access tokens; the endpoint accepts them, and tells clients where to get them."""
    services: Sequence[object] = ()
    """Objects for programs that open the gateway in their own process: `app.service(Type)` returns the one of a type."""
    reloads: Mapping[str, Callable[[Config], Awaitable[Callable[[], Awaitable[None]] | None]]] = field(
        default_factory=dict
    )
    """By section: prepares what a changed configuration says in it, and returns what puts that in force; None if there is nothing
    to do. Raises `ToolpostError`, having changed nothing, if it cannot be done. Changes of other sections of the part take effect
    at the next start."""
    run: Callable[[Gateway], AbstractAsyncContextManager[None]] | None = None
    """Entered when tools can be called, left before calls in flight are ended."""


@dataclass(frozen=True, kw_only=True)
class OpenParts:
    """What all open parts provide together."""

    by_name: Mapping[str, Provided] = field(default_factory=dict)

    @property
    def conversations(self) -> AgentCallObserver | None:
        """The observer of the calls of agents; that of the first part that has one."""
        return next((p.conversations for p in self.by_name.values() if p.conversations is not None), None)

    @property
    def observer(self) -> Observer | None:
        """What is told of every request; that of the first part that has one."""
        return next((p.observer for p in self.by_name.values() if p.observer is not None), None)

    @property
    def on_recorded(self) -> list[Callable[[Call], None]]:
        """What is told of calls whose audit entry is written."""
        return [p.on_recorded for p in self.by_name.values() if p.on_recorded is not None]

    @property
    def tasks(self) -> Tasks | None:
        """Who keeps tasks; the first part that does."""
        return next((p.tasks for p in self.by_name.values() if p.tasks is not None), None)

    @property
    def sampler(self) -> Sampler | None:
        """Who answers sampling where a client does not; the first part that does."""
        return next((p.sampler for p in self.by_name.values() if p.sampler is not None), None)

    @property
    def logins(self) -> dict[str, ServerSpec]:
        """What people log in to besides servers, by name."""
        return {name: spec for provided in self.by_name.values() for name, spec in provided.logins.items()}

    @property
    def limiter(self) -> ResultLimiter | None:
        """What makes large results smaller; that of the first part that has one."""
        return next((p.limiter for p in self.by_name.values() if p.limiter is not None), None)

    def companions(self, loaded: PluginHost) -> frozenset[str]:
        """Names of the plugins that every caller sees: not of servers or other plugins that were loaded under such a name."""
        return frozenset(
            plugin.name for p in self.by_name.values() for plugin in p.companions if loaded.is_loaded(plugin)
        )

    @property
    def login(self) -> LoginServer | None:
        """Who issues access tokens; the first part that does."""
        return next((p.login for p in self.by_name.values() if p.login is not None), None)

    @property
    def complete(self) -> Complete | None:
        """What asks the models of the reranker; of the first part that does."""
        return next((p.complete for p in self.by_name.values() if p.complete is not None), None)

    @property
    def middleware(self) -> list[NamedMiddleware]:
        """What parts run around every call, in the order in which they opened."""
        return [
            NamedMiddleware(f"{name}:{getattr(function, '__name__', type(function).__name__)}", function)
            for name, provided in self.by_name.items()
            for function in provided.middleware
        ]

    def derive(self, providers: Sequence[Provider]) -> Sequence[Provider]:
        """Return the providers that the catalog is made of, given those of plugins and servers."""
        for provided in self.by_name.values():
            if provided.derive is not None:
                providers = provided.derive(providers)
        return providers

    @property
    def guards(self) -> list[Guard]:
        """What decides whether calls may run, in the order in which parts opened."""
        return [guard for provided in self.by_name.values() for guard in provided.guards]

    def gauges(self) -> dict[str, tuple[str, float] | Gauge]:
        """Return what holds at this moment in all parts."""
        return {
            name: value for p in self.by_name.values() if p.gauges is not None for name, value in p.gauges().items()
        }

    @property
    def pages(self) -> dict[str, str]:
        """Paths of all pages for people, by title: first those of the part that has `/`, then in the order of the parts."""
        parts = sorted(self.by_name.values(), key=lambda provided: "/" not in provided.pages.values())
        return {title: path for p in parts for title, path in p.pages.items()}

    def check_change(self, request: HttpRequest, admission: Admission) -> None:
        """Raise for a request that some part does not let change anything."""
        for provided in self.by_name.values():
            if provided.check_change is not None:
                provided.check_change(request, admission)

    async def attention(self, principal: Principal) -> list[Attention]:
        """Return what waits for a person in all parts, as far as a caller may know it."""
        return [item for p in self.by_name.values() if p.attention is not None for item in await p.attention(principal)]

    async def welcome(self, url: str) -> list[str]:
        """Return what all parts print when HTTP begins to be served at this URL."""
        return [line for p in self.by_name.values() if p.welcome is not None for line in await p.welcome(url)]

    def routes(self, http: HttpContext) -> list[Routes]:
        """Make the paths of all parts. Those of installed parts come first: a bundled one has all that is left of `/api`."""
        found = reversed(list(self.by_name.values()))
        return [routes for p in found if p.routes is not None for routes in p.routes(http)]
