"""The transports that clients connect to: stdio, HTTP, and memory for tests.

calls            `tools/list` and `tools/call`, the same on every transport
listing          `tools/list` from prepared bytes
stdio, memory    one client on a two-way channel, which `duplex` reads and answers
http/            many clients over HTTP
auth/            who they are: tokens, OAuth, Host and Origin
sdk/             all other methods, by the official SDK
tasks/           MCP tasks: calls that outlive their requests
client_session   a client of the handshake era that servers may ask
input_rounds     the same in the stateless era: requests in several rounds, with a signed `request_state`
in_flight        the unanswered calls of one client
instructions     the instructions of the gateway and of its servers
observer         observes all requests, for telemetry
"""
