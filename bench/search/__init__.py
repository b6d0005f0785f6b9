"""How well and how fast tools are found, beside FastMCP's own search and bm25s: `scripts/bench search`.

sets      the public sets of tools and queries, and their two halves
peers     everybody who ranks, behind one method
quality   how often the right tool is among the first
steps     how much of a task of several steps one search finds
speed     what a query, an index and a change cost, up to 100,000 tools
doubt     how well a weak match is told from a good one
choice    what other weights would give
page      tables for a person and for the documentation
"""
