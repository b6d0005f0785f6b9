"""MCP tasks (`io.modelcontextprotocol/tasks`): calls that outlive their requests.

extension        the declaration of the extension, and the names of its methods
endpoint         the methods `tasks/*` and the handles of tasks, as JSON-RPC results
notifications    `notifications/tasks`, on a `subscriptions/listen`; loads the SDK
polled_channel   a client that reads the requests of servers and answers them later
runner           starts tasks, runs them to their end, finds and cancels them
orphans          tasks whose process ended: run again or failed
results          the outcome of a task, from the answer of its call
records          a task as a value and as a row, and every transaction on it
owners           which process runs a task, and whether it still exists
api              `/api/tasks`, for the view of the console

A client that declares the extension on a `tools/call` gets a handle instead of the result. Clients poll with `tasks/get`; there
is no list of tasks, so an id is known only to the caller that was given it, and answers to that caller alone. A task passes the
same gateway as any other call; only its answer is stored instead of sent. The table is `mcp_tasks`.
"""
