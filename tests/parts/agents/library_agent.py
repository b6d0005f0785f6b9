"""An agent made with the protocol's own library, so that not only our own reading of it is tested."""

import asyncio
from typing import Any

import acp
from acp import schema


class Agent:
    """Says what it was told."""

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        return schema.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **_: Any) -> schema.NewSessionResponse:
        return schema.NewSessionResponse(session_id="one")

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        for word in ("you ", "said ", prompt[0].text):
            await self._client.session_update(session_id, acp.update_agent_message_text(word))
        return schema.PromptResponse(stop_reason="end_turn")


if __name__ == "__main__":
    asyncio.run(acp.run_agent(Agent()))  # type: ignore[arg-type]
