"""Servers over streamable HTTP."""
