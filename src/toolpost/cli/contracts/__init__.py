"""`toolpost lock`, `check` and `diff`."""
