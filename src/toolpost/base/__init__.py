"""What every layer may import: ids, callers, clocks, log events, redaction. Nothing here knows MCP."""
