"""`toolpost servers`."""
