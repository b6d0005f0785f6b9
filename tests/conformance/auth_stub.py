"""The command that the suite starts: passes its URL and scenario on to the test's process (`auth_client`), and waits for it."""

import json
import os
import socket
import sys

port, url = int(sys.argv[1]), sys.argv[-1]
scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
if not scenario.startswith("auth/"):
    sys.exit("not tested here")
context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
with socket.create_connection(("127.0.0.1", port)) as channel:
    channel.sendall(json.dumps({"url": url, "scenario": scenario, "context": context}).encode() + b"\n")
    ending = channel.makefile().read()
sys.exit(ending or 0)
