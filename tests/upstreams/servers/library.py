"""A good server with resources, a template, prompts and completions, on stdio or HTTP."""

import sys

from mcp.server.mcpserver import MCPServer
from mcp_types import Completion

server = MCPServer("library")


@server.resource("book://one", name="one", mime_type="text/plain")
def one() -> str:
    return "the first book"


@server.resource("book://shelf/{number}", name="shelf")
def shelf(number: str) -> str:
    return f"shelf {number}"


@server.prompt(name="review")
def review(title: str) -> str:
    return f"Review {title}."


@server.completion()  # type: ignore[no-untyped-call]
async def complete(ref: object, argument: object, context: object) -> Completion:
    return Completion(values=[f"{getattr(argument, 'value', '')}!"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
