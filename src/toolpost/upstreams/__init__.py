"""MCP servers behind the gateway: how they are started, reached, asked and stopped.

spec, report              a server as configured, its state, and its own description
transport                 the interface for requests to one server, in either era
stdio, http/, sse         the transports to other processes; `peer` and `outbox` carry JSON-RPC over a two-way channel
observed                  a transport that tells telemetry of its requests
in_process                servers that are objects of this process (FastMCP, the SDK)
message                   incoming messages parsed, outgoing requests written
server_requests           requests of a server to the client of a call: elicitation, sampling, roots, those of extensions
notifications             log messages and changes that a server announces, and which clients they concern
handshake, lists          which era a server speaks, its capabilities, and its lists read page by page
client                    a client of one server over HTTP, without a supervisor
supervisor                one server across restarts of its processes. Its parts: `pool` (instances by key), `lifecycle` (one
                          instance from start to end), `instance`, `failures`, `changes`
mask                      removes a server's credentials from its output
validation/               schema validation that may take long, in a process that can be killed

Credentials are left to `toolpost.credentials`, processes to `toolpost.processes`; the contracts of a server's tools, and the
validation of their results, to `toolpost.providers`.
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
