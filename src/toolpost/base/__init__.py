"""What every layer may import: ids, callers, clocks, log events, redaction, JSON values. Nothing here knows MCP."""
