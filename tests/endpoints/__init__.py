"""The HTTP endpoint, piece by piece."""
