"""MCP as values: `rpc` reads and writes messages, `era` knows the revisions. No sockets, no tasks."""
