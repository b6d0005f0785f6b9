"""The docs, run: every example works, every generated page is what the code says."""
