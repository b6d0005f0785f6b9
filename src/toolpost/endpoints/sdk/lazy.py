"""Deliberate late imports: the official SDK takes over a second to load, and the first answers do not need it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anyio import Lock, to_thread

from toolpost.base.caller import UNLIMITED, Scope
from toolpost.base.ids import JsonObject
from toolpost.base.late_import import import_in_thread
from toolpost.endpoints.auth.oauth_rules import OAuthRules
from toolpost.endpoints.auth.roster import TokenIssuer, TokenVerifier
from toolpost.endpoints.input_rounds import MultiRoundRequests
from toolpost.endpoints.tasks.endpoint import TaskEndpoint
from toolpost.fairness import EndpointShares
from toolpost.middleware.extensions import NO_STEPS, ExtensionSteps
from toolpost.providers.relay import Relay
from toolpost.store.audit import AuditLog

if TYPE_CHECKING:
    from toolpost.endpoints.sdk.server import SdkServer


class LazySdk:
    """Loads the SDK once, in a thread, when a request first needs it or in the background."""

    def __init__(
        self,
        relay: Relay,
        audit: AuditLog,
        rounds: MultiRoundRequests,
        shares: EndpointShares,
        tasks: TaskEndpoint,
        instructions: str | None = None,
        middleware: Sequence[Any] = (),
        mode: Scope = UNLIMITED,
        instructions_limit: int = 0,
        steps: ExtensionSteps = NO_STEPS,
    ) -> None:
        """`relay` has the servers' resources and prompts; `instructions` are shown to clients in the handshake.

        `middleware` is the SDK's kind, outermost first, around what others of it do. `mode` limits the whole gateway.
        `instructions_limit` is how many characters of servers' instructions are shown. `steps` are what methods of extensions
        pass.
        """
        self._relay = relay
        self._audit = audit
        self._rounds = rounds
        self._shares = shares
        self._instructions = instructions
        self._tasks = tasks
        self._middleware = middleware
        self._mode = mode
        self._instructions_limit = instructions_limit
        self._steps = steps
        self._lock = Lock()
        self._server: SdkServer | None = None

    @property
    def loaded(self) -> "SdkServer | None":
        """The SDK's server; None if it has not been loaded."""
        return self._server

    async def server(self) -> "SdkServer":
        """Return the SDK's server, loading it first if necessary."""
        if self._server is None:
            async with self._lock:
                if self._server is None:
                    parts = (self._relay, self._audit, self._rounds, self._shares, self._tasks, self._instructions)
                    limits = (self._mode, self._instructions_limit, self._steps)
                    sdk = await import_in_thread("toolpost.endpoints.sdk.server")
                    server: SdkServer = await to_thread.run_sync(sdk.SdkServer, *parts, self._middleware, *limits)
                    self._server = server
        return self._server


async def parameter_header_problem(
    schema: JsonObject | bool, arguments: JsonObject, headers: Mapping[str, str]
) -> str | None:
    """Return where `Mcp-Param-*` headers and arguments disagree, by the SDK's own rule; None if they agree."""

    sdk = await import_in_thread("toolpost.endpoints.sdk.server")
    return await to_thread.run_sync(sdk.parameter_header_problem, schema, arguments, headers)


def resource_server(rules: OAuthRules, login: TokenIssuer | None = None) -> TokenVerifier:
    """Return the verifier of access tokens. Its dependencies are imported only where OAuth is configured."""
    from toolpost.endpoints.auth.oauth import ResourceServer

    return ResourceServer(rules, login)
