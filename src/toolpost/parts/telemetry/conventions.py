"""Names of OpenTelemetry's semantic conventions for MCP, and Toolpost's own beside them.

tests/parts/telemetry/conventions.json is the table that everything sent is compared with.
"""

from typing import Final

METHOD: Final = "mcp.method.name"
PROTOCOL_VERSION: Final = "mcp.protocol.version"
SESSION_ID: Final = "mcp.session.id"
RESOURCE_URI: Final = "mcp.resource.uri"
REQUEST_ID: Final = "jsonrpc.request.id"
STATUS_CODE: Final = "rpc.response.status_code"
ERROR_TYPE: Final = "error.type"
TOOL_NAME: Final = "gen_ai.tool.name"
PROMPT_NAME: Final = "gen_ai.prompt.name"
OPERATION: Final = "gen_ai.operation.name"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
TRANSPORT: Final = "network.transport"
NETWORK_PROTOCOL: Final = "network.protocol.name"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

# Ours: what the conventions have no name for.
CALL_ID: Final = "toolpost.call.id"
CALLER: Final = "toolpost.caller"
SERVER: Final = "toolpost.server"
"""The server or plugin that a tool is of."""
CODE: Final = "toolpost.code"
"""The code of an error, as in docs/reference/errors.md."""

EXECUTE_TOOL: Final = "execute_tool"
INVOKE_AGENT: Final = "invoke_agent"
TOOL_ERROR: Final = "tool_error"

QUEUE_SPAN: Final = "toolpost.queue"
VALIDATION_SPAN: Final = "toolpost.validation"
AUDIT_SPAN: Final = "toolpost.audit"

SERVER_DURATION: Final = "mcp.server.operation.duration"
CLIENT_DURATION: Final = "mcp.client.operation.duration"
SERVER_SESSION: Final = "mcp.server.session.duration"
CLIENT_SESSION: Final = "mcp.client.session.duration"

DESCRIPTIONS: Final = {
    SERVER_DURATION: "Duration of MCP requests, from when they were received until they were answered.",
    CLIENT_DURATION: "Duration of MCP requests to servers, from when they were sent until they were answered.",
    SERVER_SESSION: "Duration of MCP sessions of clients.",
    CLIENT_SESSION: "Duration of MCP sessions with servers.",
}

BOUNDS_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""The buckets that the conventions ask for."""

DROPPED: Final = "toolpost.telemetry.dropped"
