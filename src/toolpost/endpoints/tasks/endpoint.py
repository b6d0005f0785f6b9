"""MCP tasks on the wire: handles of new tasks, and answers to `tasks/get`, `tasks/update` and `tasks/cancel`."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import anyio
import msgspec

from toolpost.base import format_time
from toolpost.base.caller import Caller
from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import ToolpostError
from toolpost.endpoints.listing import SERVER_STAMP
from toolpost.endpoints.tasks.extension import check_declared, task_id
from toolpost.endpoints.tasks.records import McpTaskId, TaskRecord
from toolpost.endpoints.tasks.runner import TaskClientChannel, TaskRunner
from toolpost.gateway import Answer
from toolpost.middleware import Call, ProgressNotification
from toolpost.protocol.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    ProtocolError,
    RpcMessage,
    conceal_cause,
    encode,
    params_object,
    result_response,
)

POLL_MS: Final = 100
POLL_LIMIT_MS: Final = 5_000
READ_INTERVAL_S: Final = 5.0
"""How often a followed task is read without a wake-up: one may be lost with the gateway that was to send it."""

_ACKNOWLEDGED: Final = b'{"resultType":"complete","_meta":%b}' % SERVER_STAMP


class TaskEndpoint:
    """Answers requests about tasks, and for calls that become one; every answer is encoded."""

    def __init__(self, runner: TaskRunner) -> None:
        self.runner = runner

    def client_channel_for(self, caller: Caller, meta: JsonObject) -> TaskClientChannel:
        """Return what answers the server requests of a call that becomes a task."""
        return TaskClientChannel(caller.id, meta)

    def keeps(self, call: Call) -> bool:
        """Whether a call becomes a task."""
        return isinstance(call.context.client_channel, TaskClientChannel)

    def hear(self, note: ProgressNotification) -> None:
        """Take a call's progress, which is shown as the task's message instead of being sent."""
        self.runner.hear(note)

    async def begin(self, request_id: bytes, call: Call) -> bytes | Answer:
        """Return the handle of a task that is stored by now, or the answer of a call that ended within `after_s`."""
        try:
            started = await self.runner.begin(call)
        except ToolpostError as error:
            sent = conceal_cause(error)
            raise ProtocolError(INTERNAL_ERROR, sent.message, data=sent.as_object(), request_id=request_id) from error
        if isinstance(started, Answer):
            return started
        return result_response(request_id, _encode_task(started, self.runner.wall, result_type="task"))

    async def answer(self, message: RpcMessage, caller: Caller) -> bytes:
        """Answer one of the three methods; raises `ProtocolError` for a task that is not this caller's."""
        assert message.id is not None
        try:
            return result_response(message.id, await self._result(message, caller))
        except ToolpostError as error:
            sent = conceal_cause(error)
            raise ProtocolError(INTERNAL_ERROR, sent.message, data=sent.as_object(), request_id=message.id) from error

    async def follow(self, name: str, caller: Caller, tell: Callable[[bytes], Awaitable[None]]) -> None:
        """Send the task, and again when its status or its requests change, until it ends; nothing for another caller's task."""
        sent: object = None
        async with self.runner.open_listener(McpTaskId(name)) as listener:
            while (found := await self.runner.find(McpTaskId(name), caller.id)) is not None:
                requests = self.runner.find_requests(McpTaskId(name), caller.id)
                pending = requests.pending if requests is not None else {}
                if (state := (found.status, *pending)) != sent:
                    sent = state
                    await tell(_encode_task(found, self.runner.wall, result_type=None, requests=pending))
                if found.status != "working":
                    return
                with anyio.move_on_after(READ_INTERVAL_S):
                    await listener.wait()

    async def _result(self, message: RpcMessage, caller: Caller) -> bytes:
        assert message.id is not None
        params = params_object(message)
        check_declared(params.get("_meta"), request_id=message.id)
        name = McpTaskId(task_id(message))
        if message.method == "tasks/cancel":
            if not await self.runner.cancel(name, caller.id):
                raise _make_unknown(name, message.id)
            return _ACKNOWLEDGED
        if (found := await self.runner.find(name, caller.id)) is None:
            raise _make_unknown(name, message.id)
        requests = self.runner.find_requests(name, caller.id)
        if message.method == "tasks/get":
            pending = requests.pending if requests is not None else {}
            return _encode_task(found, self.runner.wall, result_type="complete", requests=pending)
        responses = params.get("inputResponses")
        if not isinstance(responses, dict):
            raise ProtocolError(
                INVALID_PARAMS, "Invalid parameters: `params.inputResponses` must be an object", request_id=message.id
            )
        if requests is not None:
            requests.take(responses)
        return _ACKNOWLEDGED


def _make_unknown(name: str, request_id: bytes) -> ProtocolError:
    # The same answer as for a task of another caller: an id must not reveal whether it exists.
    return ProtocolError(
        INVALID_PARAMS,
        "Unknown task, or it has expired",
        data={
            "code": "NOT_FOUND",
            "message": "Unknown task, or it has expired",
            "details": {"taskId": name[:256]},
        },
        request_id=request_id,
    )


def _encode_task(
    task: TaskRecord, wall: Callable[[float], float], *, result_type: str | None, requests: JsonObject | None = None
) -> bytes:
    """Encode a task, as a result of `result_type` or as a bare object; its result and error are inserted as they were stored."""
    needs_input = bool(requests) and task.status == "working"
    fields: JsonObject = {
        **({"resultType": result_type} if result_type is not None else {}),
        "taskId": task.id,
        "status": "input_required" if needs_input else task.status,
        "createdAt": format_time(wall(task.created_at)),
        "lastUpdatedAt": format_time(wall(task.updated_at)),
        "ttlMs": round((task.expires_at - task.created_at) * 1000),
        "pollIntervalMs": _poll_ms(wall(task.created_at)),
    }
    if task.status_message:
        fields["statusMessage"] = task.status_message
    if needs_input:
        fields["inputRequests"] = requests
    if result_type != "task":
        if task.result is not None:
            fields["result"] = msgspec.Raw(task.result.encode())
        if task.error is not None:
            fields["error"] = msgspec.Raw(task.error.encode())
    fields["_meta"] = msgspec.Raw(SERVER_STAMP)
    return encode(fields)


def _poll_ms(created_at: float) -> int:
    """Return a tenth of the task's age, within bounds: a quick call is noticed soon, a slow one is polled rarely."""
    age_s = datetime.now(UTC).timestamp() - created_at
    return int(min(POLL_LIMIT_MS, max(POLL_MS, age_s * 100)))
