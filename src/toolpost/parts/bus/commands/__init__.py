"""`toolpost bus`."""
