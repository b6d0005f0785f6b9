"""MCP tasks on the wire: handles given out, and questions about them answered."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import anyio
import msgspec

from toolpost.base.caller import Caller
from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import ToolpostError
from toolpost.endpoints.listing import SERVER_STAMP
from toolpost.endpoints.tasks import check_declared, task_id
from toolpost.gateway import Answer
from toolpost.middleware import Call, ProgressNotification
from toolpost.parts.tasks.records import Deferred, DeferredId
from toolpost.parts.tasks.runner import DeferredCalls
from toolpost.parts.tasks.server_requests import LaterRespondent
from toolpost.protocol.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Message,
    ProtocolError,
    encode,
    params_object,
    result_response,
)

POLL_MS: Final = 100
POLL_LIMIT_MS: Final = 5_000
LOOK_S: Final = 5.0
"""How often whoever follows a task looks unasked: a wake-up may be lost with the gateway that was to ring."""

_ACKNOWLEDGED: Final = b'{"resultType":"complete","_meta":%b}' % SERVER_STAMP


class TaskLane:
    """Handles given out, and questions about them answered, in bytes."""

    def __init__(self, calls: DeferredCalls) -> None:
        self._calls = calls

    def client_channel_for(self, caller: Caller, meta: JsonObject) -> LaterRespondent:
        """Return who answers a server's questions in the middle of a call that becomes a task."""
        return LaterRespondent(caller.id, meta)

    def keeps(self, call: Call) -> bool:
        """Whether a call becomes a task."""
        return isinstance(call.context.client_channel, LaterRespondent)

    def hear(self, note: ProgressNotification) -> None:
        """Take a call's progress: it is shown as the task's message, not sent."""
        self._calls.hear(note)

    async def begin(self, request_id: bytes, call: Call) -> bytes | Answer:
        """Answer a call with the handle of a task that is durable by now, or with its own answer if that was quick."""
        try:
            begun = await self._calls.begin(call)
        except ToolpostError as error:
            raise ProtocolError(INTERNAL_ERROR, error.message, data=error.as_object(), request_id=request_id) from error
        if isinstance(begun, Answer):
            return begun
        return result_response(request_id, _written(begun, self._calls.wall, result_type="task"))

    async def answer(self, message: Message, caller: Caller) -> bytes:
        """Answer one of the three methods."""
        assert message.id is not None
        try:
            return result_response(message.id, await self._result(message, caller))
        except ToolpostError as error:
            raise ProtocolError(INTERNAL_ERROR, error.message, data=error.as_object(), request_id=message.id) from error

    async def follow(self, name: str, caller: Caller, tell: Callable[[bytes], Awaitable[None]]) -> None:
        """Tell how a task is, and again whenever its status has changed, until it is over; of nobody else's."""
        told: object = None
        async with self._calls.open_listener(DeferredId(name)) as bell:
            while (found := await self._calls.find(DeferredId(name), caller.id)) is not None:
                questions = self._calls.questions(DeferredId(name), caller.id)
                asked = questions.asked if questions is not None else {}
                if (state := (found.status, *asked)) != told:
                    told = state
                    await tell(_written(found, self._calls.wall, result_type=None, asked=asked))
                if found.status != "working":
                    return
                with anyio.move_on_after(LOOK_S):
                    await bell.wait()

    async def _result(self, message: Message, caller: Caller) -> bytes:
        assert message.id is not None
        params = params_object(message)
        check_declared(params.get("_meta"), request_id=message.id)
        name = DeferredId(task_id(message))
        if message.method == "tasks/cancel":
            if not await self._calls.call_off(name, caller.id):
                raise _unknown(name, message.id)
            return _ACKNOWLEDGED
        if (found := await self._calls.find(name, caller.id)) is None:
            raise _unknown(name, message.id)
        questions = self._calls.questions(name, caller.id)
        if message.method == "tasks/get":
            asked = questions.asked if questions is not None else {}
            return _written(found, self._calls.wall, result_type="complete", asked=asked)
        responses = params.get("inputResponses")
        if not isinstance(responses, dict):
            raise ProtocolError(
                INVALID_PARAMS, "Invalid parameters: `params.inputResponses` must be an object", request_id=message.id
            )
        if questions is not None:
            questions.take(responses)
        return _ACKNOWLEDGED


def _unknown(name: str, request_id: bytes) -> ProtocolError:
    # Somebody else's task is no different from none: an id must not tell whether it exists.
    return ProtocolError(
        INVALID_PARAMS,
        "There is no such task, or none any more",
        data={
            "code": "NOT_FOUND",
            "message": "There is no such task, or none any more",
            "details": {"taskId": name[:256]},
        },
        request_id=request_id,
    )


def _written(
    task: Deferred, wall: Callable[[float], float], *, result_type: str | None, asked: JsonObject | None = None
) -> bytes:
    """Write a task as the wire shows it, as a result or, without a type, by itself; what it came to is put in as it was kept."""
    is_asking = bool(asked) and task.status == "working"
    fields: JsonObject = {
        **({"resultType": result_type} if result_type is not None else {}),
        "taskId": task.id,
        "status": "input_required" if is_asking else task.status,
        "createdAt": _moment(wall(task.created_at)),
        "lastUpdatedAt": _moment(wall(task.updated_at)),
        "ttlMs": round((task.expires_at - task.created_at) * 1000),
        "pollIntervalMs": _poll_ms(wall(task.created_at)),
    }
    if task.status_message:
        fields["statusMessage"] = task.status_message
    if is_asking:
        fields["inputRequests"] = asked
    if result_type != "task":
        if task.result is not None:
            fields["result"] = msgspec.Raw(task.result.encode())
        if task.error is not None:
            fields["error"] = msgspec.Raw(task.error.encode())
    fields["_meta"] = msgspec.Raw(SERVER_STAMP)
    return encode(fields)


def _poll_ms(created_at: float) -> int:
    """Ask for a tenth of what it has taken so far: a quick call is noticed soon, a slow one is not asked about all day."""
    age_s = datetime.now(UTC).timestamp() - created_at
    return int(min(POLL_LIMIT_MS, max(POLL_MS, age_s * 100)))


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
