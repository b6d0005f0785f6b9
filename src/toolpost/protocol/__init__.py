"""MCP as values. No sockets, no tasks.

rpc       messages read and written
era       which revision a request speaks
mirrored  the arguments that go into headers too
"""
