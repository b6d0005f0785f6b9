"""The transports that clients connect to: stdio, HTTP, and memory for tests."""
