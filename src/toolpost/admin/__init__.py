"""What an operator asks of a gateway and does to it, as plain values: for the console, commands and parts.

servers      the state of servers; start, stop and restart
api          `/api/servers`

`__init__.pyi` lists the public names, looked up when they are first used.
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
