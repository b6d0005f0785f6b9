"""Other MCP clients: `toolpost import`, `install` and `uninstall`."""
