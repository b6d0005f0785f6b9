"""The HTTP client of servers, credentials and parts: proxies, certificates, event streams."""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
