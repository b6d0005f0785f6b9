"""`toolpost call`."""
