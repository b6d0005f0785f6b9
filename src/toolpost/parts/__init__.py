"""The products on top of the kernel. Each is a package, and strangers to each other.

bus            tasks for agent workers, with leases
conversations  agents that people and plugins talk to
tasks          MCP tasks: calls that outlive their requests
workspace      a code index
"""
