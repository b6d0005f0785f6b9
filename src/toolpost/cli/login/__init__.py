"""`toolpost login` and `toolpost logout`."""
