"""The echo tool, written the way that each framework's users would write it."""
