"""How a tool is found: by name, and by need.

catalogue  every tool by name
views      which of them somebody sees
search     which of them fit a need, best first
"""

from toolpost.discovery.catalogue import Catalogue
from toolpost.discovery.views import EVERYTHING, View

__all__ = ["EVERYTHING", "Catalogue", "View"]
