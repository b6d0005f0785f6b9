"""Where a client comes in: stdio, HTTP, memory. Two methods take the lean lane, everything else the official SDK."""
