"""Clients over streamable HTTP.

A connection answers plain calls itself, byte by byte; any other request goes through uvicorn to an ASGI application.

listener            the socket, and the server on it; `descriptors` raises the limit of open files
connection          one connection: its phases, deadlines and end; `connection_limits` has how many there may be
framing, head       the grammar of a request, and its head; `plain_requests` recognizes one that came before
responses           responses that the connection writes itself
forwarding          hands other requests over to uvicorn

app                 the ASGI application: `/mcp` and the paths below it (`paths`)
request, cookies    one request, its headers and body checked
refusal             a request that is refused with an HTTP status
exchange            one call: a JSON response, or server-sent events
sessions            sessions of the handshake era; `event_log` keeps events for clients that reconnect
disconnect          ends long responses whose caller has been removed

routes              JSON APIs and views of parts; `statuses` has the HTTP status of each error code
openapi             the OpenAPI description of JSON APIs
pages               static pages; `plain_page` writes a page without a script, for logins
server_login_pages  `/login/SERVER`: logging in to a server behind the gateway
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
