"""Deliberate late imports: the official SDK takes over a second to load, and the first answers do not need it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anyio import Lock, to_thread

from toolpost.base.ids import JsonObject
from toolpost.endpoints.auth.oauth_rules import OAuthRules
from toolpost.endpoints.auth.roster import TokenVerifier
from toolpost.endpoints.input_rounds import MultiRoundRequests
from toolpost.endpoints.tasks import Tasks
from toolpost.providers.relay import Relay
from toolpost.shares import EndpointShares
from toolpost.store import AuditLog

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
        instructions: str | None = None,
        tasks: Tasks | None = None,
    ) -> None:
        """`relay` has the servers' resources and prompts; `instructions` are shown to clients in the handshake."""
        self._relay = relay
        self._audit = audit
        self._rounds = rounds
        self._shares = shares
        self._instructions = instructions
        self._tasks = tasks
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
                    parts = (self._relay, self._audit, self._rounds, self._shares, self._instructions, self._tasks)
                    self._server = await to_thread.run_sync(_load, *parts)
        return self._server


async def parameter_header_problem(
    schema: JsonObject | bool, arguments: JsonObject, headers: Mapping[str, str]
) -> str | None:
    """Return where `Mcp-Param-*` headers and arguments disagree, by the SDK's own rule; None if they agree."""

    def check() -> str | None:
        from toolpost.endpoints.sdk import server as sdk

        return sdk.parameter_header_problem(schema, arguments, headers)

    return await to_thread.run_sync(check)


def _load(
    relay: Relay,
    audit: AuditLog,
    rounds: MultiRoundRequests,
    shares: EndpointShares,
    instructions: str | None,
    tasks: Tasks | None,
) -> "SdkServer":
    from toolpost.endpoints.sdk.server import SdkServer

    return SdkServer(relay, audit, rounds, shares, instructions, tasks)


def resource_server(rules: OAuthRules) -> TokenVerifier:
    """Return the verifier of access tokens. Its dependencies are imported only where OAuth is configured."""
    from toolpost.endpoints.auth.oauth import ResourceServer

    return ResourceServer(rules)
