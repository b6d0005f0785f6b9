"""Runs a server on stdio as one from before the stateless era: asked for its era, it knows no such thing."""

import json
import subprocess
import sys


def main() -> int:
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
    assert server.stdin is not None
    for line in sys.stdin.buffer:
        if b'"server/discover"' in line:
            refusal = {"jsonrpc": "2.0", "id": json.loads(line)["id"], "error": {"code": -32601, "message": "unknown"}}
            # Nothing else is on its way: the server itself has been told nothing yet.
            sys.stdout.write(json.dumps(refusal) + "\n")
            sys.stdout.flush()
        else:
            server.stdin.write(line)
            server.stdin.flush()
    server.stdin.close()
    return server.wait()


if __name__ == "__main__":
    sys.exit(main())
