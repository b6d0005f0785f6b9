"""What keeps a server alive, and what ends with a call.

spec, transport             how a server is reached; what is asked of it, in whatever era
stdio_wire, http_wire, sse_wire   the three ways there (`peer`, `outbox`, `pipe_lines`, `http_client` and its parts carry them)
asking, news           what a server asks while it answers, and what it says by itself
negotiation               which era a server speaks, and which tools it has
supervisor             one server: asked, started, stopped (`pool`, `life`, `instance`, `backoff`, `failure`, `changes`, `report`)
validation             what a validator may take long for, in a process of its own (`validation_process`)
process_tree           starts processes, and ends them with all that they started; `reaper` watches each of them
"""
