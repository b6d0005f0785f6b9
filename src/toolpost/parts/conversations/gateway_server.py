"""The gateway as the MCP server that an agent is handed: over HTTP, or for one that cannot, on stdio through `bridge.py`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolpost.base.caller import GatewayAccess

NAME: Final = "toolpost"
"""What agents know the gateway by."""

PREFIX: Final = f"mcp__{NAME}__"
"""What some of them put before the names of its tools."""

URL_VARIABLE: Final = "TOOLPOST_DOOR_URL"
TOKEN_VARIABLE: Final = "TOOLPOST_DOOR_TOKEN"  # noqa: S105 (a name)


@dataclass(frozen=True, kw_only=True)
class StdioServer:
    """A command that passes on to the gateway what it reads."""

    command: str
    args: tuple[str, ...]
    env: dict[str, str]


def headers_of(door: GatewayAccess) -> dict[str, str]:
    """Return what lets an agent in over HTTP."""
    return {"Authorization": f"Bearer {door.token}"}


def stdio_server_of(door: GatewayAccess) -> StdioServer:
    """Return what an agent starts that speaks MCP on stdio alone."""
    bridge = str(Path(__file__).with_name("bridge.py"))
    return StdioServer(
        command=sys.executable, args=("-S", "-E", bridge), env={URL_VARIABLE: door.url, TOKEN_VARIABLE: door.token}
    )
