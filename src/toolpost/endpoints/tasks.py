"""The tasks extension of MCP (`io.modelcontextprotocol/tasks`), for endpoints: the declaration of a client, and the task service.

A client that declares the extension on a `tools/call` gets a handle instead of the result. Clients poll with `tasks/get`;
there is no list of tasks, so an id is known only to the caller that was given it, and answers to that caller alone. A part
keeps the tasks; without one, every call is answered as usual.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from toolpost.base.caller import Caller
from toolpost.base.ids import JsonObject
from toolpost.gateway import Answer
from toolpost.middleware.call import Call
from toolpost.middleware.progress import ProgressNotification
from toolpost.protocol.era import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from toolpost.protocol.extensions import TASKS
from toolpost.protocol.rpc import INVALID_PARAMS, Message, ProtocolError, params_object
from toolpost.upstreams.server_requests import ClientChannel

EXTENSION: Final = TASKS
TASK_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
MISSING_CAPABILITY: Final = -32021


class Tasks(Protocol):
    """Keeps calls that outlive their requests, and answers requests about them, in bytes."""

    def client_channel_for(self, caller: Caller, meta: JsonObject) -> ClientChannel:
        """Return the channel for server requests during a call that becomes a task."""
        ...

    def keeps(self, call: Call) -> bool:
        """Whether a call has a channel of `client_channel_for`, and so is answered by `begin`."""
        ...

    def hear(self, note: ProgressNotification) -> None:
        """Take a call's progress, which is shown as the task's message instead of being sent."""
        ...

    async def begin(self, request_id: bytes, call: Call) -> bytes | Answer:
        """Return the handle of a task that is durable by now, or the call's own answer if that was quick."""
        ...

    async def answer(self, message: Message, caller: Caller) -> bytes:
        """Answer one of `TASK_METHODS`."""
        ...

    async def follow(self, name: str, caller: Caller, tell: Callable[[bytes], Awaitable[None]]) -> None:
        """Call `tell` with a task's status, and again whenever it has changed, until the task has ended."""
        ...


def declares_tasks(meta: JsonObject) -> bool:
    """Whether a request declares the extension; earlier requests do not count."""
    capabilities = meta.get(CLIENT_CAPABILITIES)
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    return isinstance(extensions, dict) and isinstance(extensions.get(EXTENSION), dict) and PROTOCOL_VERSION in meta


def task_id(message: Message) -> str:
    """Return the task that a request is about."""
    name = params_object(message).get("taskId")
    if not isinstance(name, str):
        raise ProtocolError(
            INVALID_PARAMS, "Invalid parameters: `params.taskId` must be a string", request_id=message.id or b"null"
        )
    return name


def check_declared(meta: object, *, request_id: bytes) -> None:
    """Refuse a client that does not say on this very request that it knows tasks."""
    if not isinstance(meta, dict) or not declares_tasks(meta):
        raise ProtocolError(
            MISSING_CAPABILITY,
            f"This request must declare the extension {EXTENSION}",
            data={"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
            request_id=request_id,
        )
