from toolpost.app.app import App as App
from toolpost.app.open import open_app as open_app
from toolpost.app.serve import open_http as open_http
from toolpost.app.serve import serve_on_stdio as serve_on_stdio
from toolpost.endpoints.stdio import StdioStreams as StdioStreams
