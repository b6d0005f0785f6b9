"""`toolpost workspace`."""
