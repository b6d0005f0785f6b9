"""How a tool is found: by name, and by need.

catalogue       every tool by name
views           which of them somebody sees

automatic       the gateway's own two tools, and what an endpoint serves
automatic_mcp   finds tools by need, and sends a session what it has not been sent
automatic_eval  runs any of them
finder          ranked, reranked, cut
embedder        a sentence model beside the table, where the operator has one
reranker        a second opinion from an OpenAI-compatible endpoint
seen            whose session a search belongs to
preparation     the index, prepared in the background and swapped in
snapshot        the tools of one moment, ready to be searched
search          the ranking itself
"""

from toolpost.discovery.catalog import Catalogue
from toolpost.discovery.views import EVERYTHING, View

__all__ = ["EVERYTHING", "Catalogue", "View"]
