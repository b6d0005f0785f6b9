"""How a tool is found: by name today, by need later.

catalogue  every tool by name
views      which of them somebody sees
"""

from toolpost.discovery.catalogue import Catalogue
from toolpost.discovery.views import EVERYTHING, View

__all__ = ["EVERYTHING", "Catalogue", "View"]
