"""How a tool is found by need: ranked here, without a network and without a neural network.

document   what is searched: a tool as it describes itself
index      the index of all of them, asked by anybody; numpy is loaded when the first is prepared
ranking    what a search answers, and how many of its hits to hand out
tokens     what a text costs a model
weights    every weight, and the measurement that chose it

fields     where a document has its words
words      text as words that can be compared
synonyms   words for the same thing
clauses    a request taken apart
sureness   how sure a ranking may be
matching   why a tool was found

engine     segments of documents, put together
segment    some documents, prepared: postings and vectors
postings   which document has which word
meaning    vectors from the table in model/
scoring    how well each document fits a request
"""

from toolpost.discovery.search.document import Document
from toolpost.discovery.search.index import SearchIndex
from toolpost.discovery.search.ranking import Hit, Match, Ranking, cut
from toolpost.discovery.search.tokens import tokens

__all__ = ["Document", "Hit", "Match", "Ranking", "SearchIndex", "cut", "tokens"]
