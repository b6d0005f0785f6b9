"""MCP servers behind the gateway: how they are started, reached, asked and stopped.

spec, report              a server as configured, its state, and what it says about itself
transport                 the interface for requests to one server, in either era
stdio, http/, sse         the transports to other processes; `peer` and `outbox` carry JSON-RPC over a two-way channel
in_process                servers that are objects of this process (FastMCP, the SDK)
message                   incoming messages parsed, outgoing requests written
server_requests           requests of a server to the client of a call: elicitation, sampling, roots, those of extensions
notifications             log messages and changes that a server announces, and which clients they concern
handshake, lists          which era a server speaks, its capabilities, and its lists read page by page
supervisor                one server, whatever happens to its processes. Its parts: `pool` (instances by key), `lifecycle` (one
                          instance from start to end), `instance`, `failures`, `changes`
credentials/              credentials with which servers are reached: encrypted in the store, shared or a caller's own
validation/               schema validation that may take long, in a process that can be killed
process/                  starts processes, and ends them with everything that they started

What the tools of a server promise, and how their results are checked, is left to `providers`.
"""
