"""Toolpost: one MCP endpoint where every tool is held to its contract. Authors and applications import this page.

`__init__.pyi` lists the names, and where each is defined. They are looked up when they are first used: the command line loads
this package, and does not need most of them.
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
