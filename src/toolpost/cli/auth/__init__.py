"""`toolpost auth`: credentials, their key, tokens, and logging out."""
