"""The gateway as an MCP server of an agent: over HTTP with a token, or through `bridge.py` for agents that know only stdio."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolpost import Caller
from toolpost.base import Scope
from toolpost.base.caller import GatewayAccess
from toolpost.endpoints.auth.delegated_tokens import DelegatedTokens

NAME: Final = "toolpost"
"""The name of the gateway in an agent's list of MCP servers."""

PREFIX: Final = f"mcp__{NAME}__"
"""The prefix that some agents put before the names of its tools."""

# `bridge.py` reads these; it imports nothing from here, to start fast.
URL_VARIABLE: Final = "TOOLPOST_GATEWAY_URL"
TOKEN_VARIABLE: Final = "TOOLPOST_GATEWAY_TOKEN"  # noqa: S105 (a name)


@dataclass(frozen=True, kw_only=True)
class BridgeCommand:
    """The command of a stdio server that forwards to the gateway."""

    command: str
    args: tuple[str, ...]
    env: dict[str, str]


@contextmanager
def open_gateway_access(
    tokens: DelegatedTokens | None, caller: Caller, scopes: Sequence[Scope]
) -> Iterator[GatewayAccess | None]:
    """Issue a token that acts as this caller, and revoke it when the block is left; None while HTTP is not served."""
    access = tokens.issue(caller, scopes) if tokens is not None else None
    if tokens is None or access is None:
        yield None
        return
    try:
        yield access
    finally:
        tokens.revoke(access)


def make_auth_headers(access: GatewayAccess) -> dict[str, str]:
    return {"Authorization": f"Bearer {access.token}"}


def make_bridge_command(access: GatewayAccess) -> BridgeCommand:
    """Return the server for an agent that speaks MCP over stdio only."""
    bridge = str(Path(__file__).with_name("bridge.py"))
    return BridgeCommand(
        command=sys.executable,
        args=("-S", "-E", bridge),
        env={URL_VARIABLE: access.url, TOKEN_VARIABLE: access.token},
    )
