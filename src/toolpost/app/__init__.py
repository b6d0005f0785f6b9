"""A gateway from settings and parts: opened in order, closed in reverse. Knows no part by name.

app       a running gateway
open      the order of opening
assemble  what is made with what
loading   parts and plugins: found, loaded, opened
serve     over HTTP, as an ASGI application, on stdio
refresh   catalog and listing after a change
quiet     a gateway for one command, whose output stays off stdout
tool_states  the tools as they are, and as they were pinned: what `lock`, `check` and `diff` compare
reload    a changed configuration and lock
callers   the callers that are configured
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
