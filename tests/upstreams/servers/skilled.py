"""A server with an extension of its own, made with the official SDK, on stdio; HTTP serves the same object."""

from collections.abc import Sequence
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer
from mcp.shared.message import ServerMessageMetadata

IDENTIFIER = "com.example/skills"


class ListSkillsParams(types.RequestParams):
    topic: str = ""


async def list_skills(context: ServerRequestContext[Any, Any], params: ListSkillsParams) -> dict[str, Any]:
    declared = context.session.client_capabilities
    extensions = (declared.extensions or {}) if declared is not None else {}
    return {"skills": [{"name": f"about {params.topic}"}], "declared": extensions.get(IDENTIFIER)}


class Told(types.Notification[dict[str, Any], str]):
    method: str = "notifications/skills/seen"
    params: dict[str, Any]


class Answer(types.Result):
    seen: dict[str, Any]


async def teach(context: ServerRequestContext[Any, Any], params: ListSkillsParams) -> dict[str, Any]:
    """Tell the client something, ask it something where the era lets us, and return its answer."""
    told: Any = Told(params={"topic": params.topic})
    await context.session.send_notification(told, related_request_id=context.request_id)
    if context.protocol_version == "2026-07-28":
        return {"answer": {"about": params.topic}}
    request = types.Request[dict[str, Any], str](method="skills/question", params={"about": params.topic})
    related = ServerMessageMetadata(related_request_id=context.request_id)
    return {"answer": (await context.session.send_request(request, Answer, metadata=related)).seen}  # type: ignore[arg-type]


class Skills(Extension):
    identifier = IDENTIFIER

    def settings(self) -> dict[str, Any]:
        return {"formats": ["markdown"]}

    def methods(self) -> Sequence[MethodBinding]:
        return [
            MethodBinding("skills/list", ListSkillsParams, list_skills),
            MethodBinding("skills/teach", ListSkillsParams, teach),
        ]


server = MCPServer("skilled", instructions="List the skills before anything else.", extensions=[Skills()])


@server.tool()
def rest() -> str:
    return "rested"


if __name__ == "__main__":
    server.run("stdio")
