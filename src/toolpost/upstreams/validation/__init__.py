"""Validation that may take long, in a process that a deadline can kill."""
