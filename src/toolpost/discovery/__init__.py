"""How a tool is found: by name today, by need later."""

from toolpost.discovery.catalogue import Catalogue

__all__ = ["Catalogue"]
