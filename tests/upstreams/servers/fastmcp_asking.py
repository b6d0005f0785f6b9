"""A server made with FastMCP, whose tools ask in the way of one era each, whatever that of the client."""

from dataclasses import dataclass
from typing import Any

import mcp_types as types
from fastmcp import Context, FastMCP

from tests.upstreams.servers.asking import FORM

server: FastMCP[Any] = FastMCP("asking")


@dataclass
class Who:
    name: str


async def find_name(context: Context) -> str:
    answer: Any = await context.elicit("Who are you?", response_type=Who)
    return str(answer.data.name)


@server.tool
async def ask(context: Context) -> str:
    return await find_name(context)


@server.prompt
async def ask_in_prompt(context: Context) -> str:
    return await find_name(context)


@server.tool(output_schema=None)
async def guard(context: Context) -> Any:
    if (answers := context.input_responses) is None:
        return types.InputRequiredResult(input_requests={"who": types.ElicitRequest(params=FORM)}, request_state="x")
    return str(next(iter(answers.values())).content["name"])


if __name__ == "__main__":
    server.run(show_banner=False)
