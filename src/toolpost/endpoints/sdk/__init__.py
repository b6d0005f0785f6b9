"""Everything but `tools/call` and `tools/list`: handled by the official MCP SDK."""
