"""The gateway as an MCP server of an agent: over HTTP with a token, or through `bridge.py` for agents that know only stdio."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolpost.parts import GatewayAccess

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
