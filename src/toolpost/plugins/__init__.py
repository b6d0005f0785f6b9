"""The tools that the kernel brings, and the names of those that bundled parts bring.

time       what time it is, here and elsewhere
"""

from typing import Final

from toolpost.manifest import bundled_parts

BUNDLED: Final = tuple(sorted(("time", *(name for part in bundled_parts() for name in part.plugins))))
"""Plugins that are loaded where `plugins.bundled` or `--with` names them."""

DEFAULT: Final = ("time",)
"""What is loaded where nothing at all is configured, so that there is something to try."""
