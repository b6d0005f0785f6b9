"""Rank tools for a query in plain words, locally: BM25F over their definitions, mixed with static word embeddings.

document   a tool as it is indexed: its fields and their text
words      text to comparable words: tokenizing, stemming, synonyms
query      a query split into clauses, and which words of a tool match it
weights    every weight of the score, and the measurements behind it
ranking    what a search returns, how confident it is, and how many tools to return
index      `SearchIndex`, the entry point; the only module here that loads numpy, and only to prepare an index

engine     immutable segments of documents, updated incrementally
postings   the inverted index of a segment
meaning    text vectors from the table in model/
scoring    the score of each document for a query
"""

from toolpost.discovery.search.document import ToolDocument
from toolpost.discovery.search.index import SearchIndex
from toolpost.discovery.search.ranking import Match, RankedTool, Ranking, cut, estimate_tokens

__all__ = ["Match", "RankedTool", "Ranking", "SearchIndex", "ToolDocument", "cut", "estimate_tokens"]
