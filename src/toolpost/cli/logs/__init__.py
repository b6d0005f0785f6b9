"""The log: how events look, the files that keep them, and `toolpost logs`."""
