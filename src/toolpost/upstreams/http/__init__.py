"""Servers over streamable HTTP: `transport` speaks MCP, `client` speaks HTTP/1.1."""
