"""Pages of the gateway in a real browser."""
