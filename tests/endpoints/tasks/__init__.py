"""MCP tasks, through the front door: calls that outlive their requests, and the gateway that began them."""
