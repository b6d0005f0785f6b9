"""Attacks on the product, kept as tests. `docs/reference/hostile-suite.md` is generated from their `@attack` lines."""
