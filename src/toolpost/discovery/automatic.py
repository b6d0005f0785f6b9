"""The gateway's two own tools, `automatic_mcp` and `automatic_eval`: thousands of tools for the tokens of two definitions."""

from typing import Final, Literal

from toolpost.base.ids import JsonObject
from toolpost.discovery import automatic_eval, automatic_mcp
from toolpost.discovery.automatic_eval import ResolvedCall
from toolpost.discovery.automatic_mcp import AutomaticMcp
from toolpost.discovery.catalog import Catalog
from toolpost.discovery.views import View

Mode = Literal["all", "automatic", "both"]
"""What an endpoint lists: all tools, only these two, or both."""

AUTOMATIC_NAMES: Final = frozenset({automatic_mcp.NAME, automatic_eval.NAME})

INSTRUCTIONS: Final = (
    "Many tools stand behind two: automatic_mcp finds them, automatic_eval runs them. For each sub-task call automatic_mcp"
    " with a short English query that names the service, and read the definitions that it returns. Then call automatic_eval"
    " with a tool's name and arguments that follow its inputSchema; a refusal names each fault and carries the schema, so"
    " mend the arguments and call again."
)
"""Added to the `instructions` of an endpoint that lists the two tools."""


def automatic_definitions(catalog: Catalog) -> list[JsonObject]:
    """Return the definitions of both; that of `automatic_mcp` names the servers of this catalog."""
    return [automatic_eval.contract().definition, automatic_mcp.contract_for(catalog.servers).definition]


def resolve_call(
    name: str,
    arguments: JsonObject,
    meta: JsonObject | None,
    *,
    catalog: Catalog,
    view: View,
    finding: AutomaticMcp,
) -> ResolvedCall:
    """Turn a call of one of the two into the call that passes the middleware.

    That is `automatic_mcp` itself, or the tool that `automatic_eval` is asked to run.
    """
    if name == automatic_mcp.NAME:
        return ResolvedCall(finding.tool(catalog, view), arguments, meta, None)
    return automatic_eval.resolve_call(arguments, meta, catalog)
