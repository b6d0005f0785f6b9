"""Deliberate late imports: the official SDK takes over a second to load, and the first answers do not need it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anyio import Lock, to_thread

from toolpost.base.caller import UNLIMITED, Scope
from toolpost.base.ids import JsonObject
from toolpost.base.late_import import import_in_thread
from toolpost.endpoints.auth.oauth_rules import OAuthRules
from toolpost.endpoints.auth.roster import TokenIssuer, TokenVerifier
from toolpost.endpoints.input_rounds import RoundsChannels
from toolpost.endpoints.tasks.endpoint import TaskEndpoint
from toolpost.fairness import EndpointShares
from toolpost.middleware.extensions import NO_STEPS, ExtensionSteps
from toolpost.providers.relay import Relay
from toolpost.store.audit import AuditLog

if TYPE_CHECKING:
    from toolpost.endpoints.sdk.server import SdkServer


@dataclass(frozen=True, kw_only=True)
class SdkParts:
    """What the SDK's server is made of."""

    relay: Relay
    """Has the servers' resources and prompts."""
    audit: AuditLog
    rounds: RoundsChannels
    shares: EndpointShares
    tasks: TaskEndpoint
    instructions: str | None = None
    """Shown to clients in the handshake."""
    instructions_limit: int = 0
    """How many characters of servers' instructions are shown."""
    middleware: Sequence[Any] = ()
    """Of the SDK's kind, outermost first, around all other middleware of that kind."""
    mode: Scope = UNLIMITED
    """Limits the whole gateway."""
    steps: ExtensionSteps = NO_STEPS
    """The steps that methods of extensions pass."""


class LazySdk:
    """Loads the SDK once, in a thread, when a request first needs it or in the background."""

    def __init__(self, parts: SdkParts) -> None:
        self._parts = parts
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
                    sdk = await import_in_thread("toolpost.endpoints.sdk.server")
                    server: SdkServer = await to_thread.run_sync(sdk.SdkServer, self._parts)
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
