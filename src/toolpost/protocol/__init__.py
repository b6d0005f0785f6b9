"""MCP messages as values. No sockets, no tasks.

rpc       JSON-RPC messages, parsed and written
era       which revision of MCP a request speaks
shape     whether JSON can be decoded in a short time
lines     a byte stream split into lines
mirrored  arguments that are copied into HTTP headers
extensions  methods that no revision of MCP knows, and what clients and servers declare
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
