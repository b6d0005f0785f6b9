"""The `toolpost` command, mostly as a process of its own."""
