"""The gateway's own two tools: thousands of others for the context of two."""

from typing import Final, Literal

from toolpost.base.ids import JsonObject
from toolpost.discovery import automatic_eval, automatic_mcp
from toolpost.discovery.automatic_eval import Wish
from toolpost.discovery.automatic_mcp import AutomaticMcp
from toolpost.discovery.catalog import Catalogue
from toolpost.discovery.views import View

Mode = Literal["all", "automatic", "both"]
"""What an endpoint serves: all tools, only these two, or both."""

AUTOMATIC_NAMES: Final = frozenset({automatic_mcp.NAME, automatic_eval.NAME})

INSTRUCTIONS: Final = (
    "Many tools stand behind two: automatic_mcp finds them, automatic_eval runs them. For each sub-task call automatic_mcp"
    " with a short English query that names the service, and read the definitions that it returns. Then call automatic_eval"
    " with a tool's name and arguments that follow its inputSchema; a refusal names each fault and carries the schema, so"
    " mend the arguments and call again."
)
"""How an agent works here, in three sentences."""


def automatic_definitions(catalogue: Catalogue) -> list[JsonObject]:
    """Return both as they are listed to whoever sees this catalogue."""
    return [automatic_eval.contract().definition, automatic_mcp.contract_for(catalogue.servers).definition]


def wish_of(
    name: str,
    arguments: JsonObject,
    meta: JsonObject | None,
    *,
    catalogue: Catalogue,
    view: View,
    finding: AutomaticMcp,
) -> Wish:
    """Say what a call of one of the two asks for: `automatic_mcp` itself, or the tool that `automatic_eval` is to run."""
    if name == automatic_mcp.NAME:
        return Wish(finding.tool(catalogue, view), arguments, meta, None)
    return automatic_eval.wish_of(arguments, meta, catalogue)
