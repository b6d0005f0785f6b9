"""The tasks extension of MCP in a request: its declaration by the client, its methods, the task that it names."""

from typing import Final

from toolpost.base.ids import JsonObject
from toolpost.protocol.era import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from toolpost.protocol.extensions import TASKS
from toolpost.protocol.rpc import INVALID_PARAMS, ProtocolError, RpcMessage, params_object

EXTENSION: Final = TASKS
TASK_METHODS: Final = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
MISSING_CAPABILITY: Final = -32021


def declares_tasks(meta: JsonObject) -> bool:
    """Whether a request declares the extension; earlier requests do not count."""
    capabilities = meta.get(CLIENT_CAPABILITIES)
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    return isinstance(extensions, dict) and isinstance(extensions.get(EXTENSION), dict) and PROTOCOL_VERSION in meta


def task_id(message: RpcMessage) -> str:
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
