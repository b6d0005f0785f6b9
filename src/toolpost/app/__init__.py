"""A gateway from settings and parts: opened in order, closed in reverse. Knows no part by name."""

from toolpost.app.open import open_app, open_asgi, open_http, serve_on_stdio
from toolpost.app.running import App

__all__ = ["App", "open_app", "open_asgi", "open_http", "serve_on_stdio"]
