"""The tools that we bring. Each plugin here is written with nothing but what any author has."""

BUNDLED = ("toolpost.plugins.time:plugin",)
"""Loaded unless the configuration says otherwise."""
