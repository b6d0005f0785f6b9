"""Calls that outlive their requests; MCP calls them tasks.

part             tasks as a part of a gateway; `settings` has its section
lane             handles and answers on the wire
runner           begun, carried to their end, asked about, called off
server_requests  what a server asks in the middle of one, until the client answers
orphans          those that nobody carries any more, run again or ended
results          what became of a call, in words
records          a deferred call as a value and as a row, and every transaction on it
owners           which process carries a call, and whether it is still there

A deferred call passes the same gateway as any other; only its answer is kept instead of sent.
"""
