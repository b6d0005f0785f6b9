"""Find tools: by name, and by their effect.

catalog         every tool by name
tool_groups     tools that several servers have in common, listed once
views           which of them a caller sees
automatic       the gateway's two own tools: `automatic_mcp` finds tools, `automatic_eval` runs any
finder          ranks, reranks and cuts the result of a search
reranker        an optional model that reorders the best tools
preparation     builds the search index in the background
snapshot        a catalog with its search index, at one moment
search          the ranking itself
"""

from toolpost.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
