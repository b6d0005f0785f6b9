"""`toolpost login`."""
