"""The store, against real files and real processes."""
