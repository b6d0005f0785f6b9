"""Rank tools for a query in plain words, locally: BM25F over their definitions, mixed with static word embeddings.

document   a tool as it is indexed: its fields and their text
words      text to comparable words: tokenizing, stemming, synonyms; a query and its clauses
weights    every weight of the score, and the measurements behind it
index      `SearchIndex`, the entry point, and what it returns; loads numpy only to prepare an index

engine     immutable segments of documents, updated incrementally
meaning    text vectors from the table in model/
scoring    the inverted index of a segment, and the score of each document for a query
"""

from toolpost.discovery.search.document import ToolDocument
from toolpost.discovery.search.index import Match, RankedTool, Ranking, SearchIndex, cut, estimate_tokens, index_texts

__all__ = ["Match", "RankedTool", "Ranking", "SearchIndex", "ToolDocument", "cut", "estimate_tokens", "index_texts"]
