"""The HTTP API of conversations."""
