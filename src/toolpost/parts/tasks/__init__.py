"""Calls that outlive their requests; MCP calls them tasks.

calls      begun, carried to their end, asked about, called off
questions  what a server asks in the middle of one, until the client answers
orphans    those that nobody carries any more, run again or ended
endings    what became of a call, in words
records    a deferred call as a value and as a row, and every transaction on it
owners     which process carries a call, and whether it is still there

A deferred call passes the same gateway as any other; only its answer is kept instead of sent.
"""
