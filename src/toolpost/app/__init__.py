"""A gateway from settings and parts: opened in order, closed in reverse. Knows no part by name.

app       a running gateway, its health and metrics
open      the order of opening
assemble  what is made with what
loading   parts and plugins: found, loaded, opened
specs     the servers that are configured
serve     over HTTP, as an ASGI application, on stdio
refresh   catalog and listing after a change
reload    a changed configuration and lock
callers   the callers that are configured
"""

from toolpost.app.app import App
from toolpost.app.open import OpenOptions, open_app
from toolpost.app.serve import open_asgi, open_http, serve_on_stdio
from toolpost.app.specs import specs_of

__all__ = ["App", "OpenOptions", "open_app", "open_asgi", "open_http", "serve_on_stdio", "specs_of"]
