"""Toolpost beside its peers: the same echo tool, the same load, one interleaved run. Start it with `scripts/bench`."""
