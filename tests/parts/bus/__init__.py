"""The bus, on both kinds of store."""
