"""Other MCP clients: `toolpost import` and `install`."""
