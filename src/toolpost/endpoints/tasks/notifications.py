"""`notifications/tasks`: the status of tasks, sent on the `subscriptions/listen` that names them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import msgspec
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared.exceptions import MCPError
from mcp_types import Notification, SubscriptionsAcknowledgedNotification, SubscriptionsListenRequestParams

from toolpost.base.caller import Caller
from toolpost.base.ids import JsonObject
from toolpost.endpoints.tasks.endpoint import TaskEndpoint
from toolpost.endpoints.tasks.extension import EXTENSION, MISSING_CAPABILITY, declares_tasks
from toolpost.protocol.rpc import INVALID_PARAMS

METHOD: Final = "notifications/tasks"
MOST: Final = 1_000
"""How many tasks one request may name."""


class TaskChanged(Notification[dict[str, Any], str]):
    """A task, as `tasks/get` shows it."""

    method: str = METHOD
    params: dict[str, Any]


def parse_task_ids(params: SubscriptionsListenRequestParams) -> tuple[str, ...]:
    """Return the tasks that a request names; raise `MCPError` if the client does not declare the extension."""
    names = (params.notifications.model_extra or {}).get("taskIds")
    if names is None:
        return ()
    meta = params.model_dump(by_alias=True).get("_meta")
    if not isinstance(meta, dict) or not declares_tasks(meta):
        data: JsonObject = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_CAPABILITY, f"This request must declare the extension {EXTENSION}", data)
    if not isinstance(names, list) or len(names) > MOST or not all(isinstance(name, str) for name in names):
        raise MCPError(INVALID_PARAMS, f"`params.notifications.taskIds` must be an array of {MOST} strings at most")
    return tuple(dict.fromkeys(names))


class AcknowledgingSession:
    """Notes that the SDK's acknowledgement was sent, with the tasks in it, which the SDK does not know."""

    def __init__(self, session: Any, names: Sequence[str] = ()) -> None:
        self._session = session
        self._names = list(names)
        self.acknowledged = anyio.Event()

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        if self._names and isinstance(notification, SubscriptionsAcknowledgedNotification):
            extra = notification.params.notifications.model_copy(update={"taskIds": self._names})
            params = notification.params.model_copy(update={"notifications": extra})
            notification = notification.model_copy(update={"params": params})
        await self._session.send_notification(notification, related_request_id=related_request_id)
        self.acknowledged.set()


class ListenContext:
    """The part of a request context that the SDK's listening uses."""

    def __init__(self, request_id: Any, session: AcknowledgingSession) -> None:
        self.request_id = request_id
        self.session = session


@asynccontextmanager
async def open_task_notifications(
    tasks: TaskEndpoint, names: Sequence[str], caller: Caller, context: Any
) -> AsyncIterator[Any]:
    """Send the status of these tasks while this is open; yields the request context to listen with."""
    session = AcknowledgingSession(context.session, names)
    stamp = {SUBSCRIPTION_ID_META_KEY: context.request_id}

    async def send(task: bytes) -> None:
        await session.acknowledged.wait()  # which must be sent first
        params = msgspec.json.decode(task) | {"_meta": stamp}
        await session.send_notification(TaskChanged(params=params), related_request_id=context.request_id)

    async with anyio.create_task_group() as following:
        for name in names:
            following.start_soon(tasks.follow, name, caller, send)
        try:
            yield ListenContext(context.request_id, session)
        finally:
            following.cancel_scope.cancel()
