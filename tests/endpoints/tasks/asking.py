"""Clients that know tasks: the official one with an extension, and raw ones that say whatever they like."""

import http.client
import itertools
import json
import subprocess
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import anyio
import msgspec
from mcp import ClientSession
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from tests.ways import ENVELOPE, IN_MEMORY, STATELESS
from toolpost.settings.model import TaskSettings

AT_ONCE = msgspec.structs.replace(IN_MEMORY, tasks=TaskSettings(after_s=0))
"""Every call becomes a task, so that a test need not wait for one."""

EXTENSION = "io.modelcontextprotocol/tasks"
DECLARED: dict[str, Any] = ENVELOPE | {
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}},
}
ENDED = ("completed", "failed", "cancelled")


class TaskHandle(Result):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")
    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    poll_interval_ms: int


class TaskState(Result):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")
    task_id: str
    status: str
    poll_interval_ms: int
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class TaskParams(RequestParams):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    task_id: str


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param: ClassVar[str | None] = "taskId"


class Tasks(ClientExtension):
    """Polls until there is a result, as the extension asks of a client."""

    identifier = EXTENSION

    def __init__(self) -> None:
        self.handles: list[TaskHandle] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskHandle, resolve=self._resolve)]

    async def _resolve(self, handle: TaskHandle, context: ClaimContext) -> CallToolResult:
        self.handles.append(handle)
        state = await ended(context.session, handle.task_id)
        assert state.result is not None, state.error
        return CallToolResult.model_validate(state.result)


async def ended(session: ClientSession, task_id: str) -> TaskState:
    while True:
        state = await session.send_request(GetTask(params=TaskParams(task_id=task_id)), TaskState)
        if state.status in ENDED:
            return state
        await anyio.sleep(state.poll_interval_ms / 1000)


class HttpPeer:
    """Asks over HTTP, each time on a new connection."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._host = url.split("/")[2]
        self._token = token
        self._ids = itertools.count(1)

    def ask(
        self, method: str, params: dict[str, Any], *, meta: dict[str, Any] = DECLARED, **headers: str
    ) -> dict[str, Any]:
        body, said = self._request(method, params, meta)
        connection = http.client.HTTPConnection(self._host, timeout=20)
        try:
            connection.request("POST", "/mcp", json.dumps(body), said | headers)
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return answer

    def written(self, method: str, params: dict[str, Any], *, meta: dict[str, Any] = DECLARED) -> bytes:
        """Return a whole request, for a connection that somebody else holds."""
        body, said = self._request(method, params, meta)
        raw = json.dumps(body).encode()
        head = "".join(
            f"{k}: {v}\r\n" for k, v in (said | {"Host": self._host, "Content-Length": str(len(raw))}).items()
        )
        return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + raw

    def _request(
        self, method: str, params: dict[str, Any], meta: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}}
        said = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": STATELESS,
            "Mcp-Method": method,
            "Mcp-Name": str(params.get("name") or params.get("taskId") or ""),
        }
        if self._token:
            said["Authorization"] = f"Bearer {self._token}"
        return body, said


class PipePeer:
    """Asks over standard input and output."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._ids = itertools.count(1)

    def ask(self, method: str, params: dict[str, Any], *, meta: dict[str, Any] = DECLARED) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}}
        self._process.stdin.write(json.dumps(body).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the server closed its end"
        answer: dict[str, Any] = json.loads(line)
        assert answer["id"] == body["id"], answer
        return answer
