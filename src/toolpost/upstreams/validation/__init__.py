"""JSON Schema validation that may take long, in processes that a deadline can kill."""
