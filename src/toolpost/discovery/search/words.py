"""Text to comparable words: case folded, English endings removed, identifiers split, and synonyms; and a query in such words.

Example: `words_of("Lists GitHub issues")` yields `list`, `github`, `git`, `hub`, `issu`. A stem need not be a word; it has to
be the same for a query and for a tool.

A long query often asks for several things. Each of its clauses ("find a flight, book it and mail me the ticket" has three) is
scored apart as well, because a tool that fits one of them perfectly fits the whole query badly.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import islice
from typing import Final

from toolpost.base.normalization import normalize

WORD = re.compile(r"[^\W_]+")
_IDENTIFIER_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_UNSPACED_SCRIPT = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)
"""Scripts without spaces between words, or with grammar inside the word: compared by pairs of characters."""

_MAX_WORD_CHARS = 40

CACHED_WORDS: Final = 4096
"""Words whose stems, and whose pieces, are kept. Queries are other people's words: with 65,536 of them, memory grew for days, up
to 40 MB; these take 2 MB, and preparing a large index takes the same time, because few words make up most of a text."""

_STOP_WORD_LIST = """
a able about all also am an and any are as at be because been being but by can could did do does doing dont for from give had
has have having he help her here hers him his how i id if im in into is it its itself ive just know let like may me might more
most must my myself need of on only or other our ours please shall she should show so some such tell than that the their them
then there these they this those to too us very want was we were what when where which while who whom why will with would you
your yours
"""

STOP_WORDS = frozenset(_STOP_WORD_LIST.split())


def words_of(text: str) -> Iterator[str]:
    """Yield the stems of a text, without stop words; `GitHub` yields `github`, `git` and `hub`."""
    if not text.isascii():
        text = normalize("NFKC", text)
    for word in WORD.findall(text):
        yield from _stems_of(word[:_MAX_WORD_CHARS])


@lru_cache(maxsize=CACHED_WORDS)
def _stems_of(word: str) -> tuple[str, ...]:
    if word.isascii():
        parts = _IDENTIFIER_PART.findall(word)
        whole = word.lower()
        forms = [whole] if len(parts) < 2 else [whole, *(part.lower() for part in parts if len(part) > 1)]
        return tuple(stem(form) for form in forms if form not in STOP_WORDS)
    pairs: list[str] = []
    for unspaced in _UNSPACED_SCRIPT.findall(word):
        pairs += [unspaced[start : start + 2] for start in range(max(1, len(unspaced) - 1))]
    spaced = _UNSPACED_SCRIPT.sub(" ", word).casefold()
    # Without accents: people leave them out when they type.
    plain = "".join(char for char in normalize("NFKD", spaced) if not unicodedata.combining(char))
    return (*pairs, *(stem(form) for form in plain.split() if form not in STOP_WORDS))


def stem(word: str) -> str:
    """Remove an English ending. Sometimes linguistically wrong, but in the same way for queries and tools."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-2] if word.endswith(("sses", "shes", "ches", "xes", "zes")) else word[:-1]
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            word = word[: -len(ending)]
            return word[:-1] if word[-1] == word[-2] and word[-1] not in "ls" else word.removesuffix("e")
    return word.removesuffix("e") if len(word) > 3 else word


_SYNONYM_GROUPS = """
create add new make insert generate
delete remove drop erase destroy
update edit modify change patch
get fetch retrieve read obtain load
list enumerate browse
search find lookup query locate
send post deliver
message chat dm
email mail inbox
picture image photo
movie film cinema
song music track
video clip
file document doc
folder directory
repository repo
issue ticket bug
pr pull
weather forecast temperature climate
location place address city
map route direction navigation
price cost rate quote
stock share equity ticker
crypto cryptocurrency bitcoin coin
currency exchange forex
money payment pay
buy purchase order shop
product item goods
translate translation language
convert transform conversion
calculate compute calculation
schedule calendar appointment meeting event
task todo
note memo
reminder alarm
run execute invoke launch
start begin
stop end terminate halt kill
web website internet online page url
scrape crawl extract
download save
upload import
summarize summary
news headline article
flight airline airport
hotel accommodation lodging
restaurant food dining meal recipe
health medical doctor
job career employment vacancy
user account member profile
team group
database db sql table
code program script
log history
password secret credential
verify validate check
random arbitrary
game play
sport match football soccer
book novel library
car vehicle automobile
house property estate rental
company business firm
student course education learn
chart graph plot diagram
k8s kubernetes
postgres postgresql
js javascript
screenshot capture snapshot
reservation booking reserve
refund reimburse
invoice bill receipt
customer client
employee staff worker
channel room
comment reply
label tag
rename move
copy duplicate clone
compare diff difference
share invite
dictionary definition
joke humor funny
horoscope zodiac astrology
holiday vacation trip travel
domain dns whois
phone telephone mobile sms
tweet twitter
salary wage income
loan mortgage
wallet balance
deploy release publish
monitor metric
workflow pipeline automation
container docker
pdf document
spreadsheet excel sheet
slide presentation powerpoint deck
subtitle transcript caption
speech voice audio
"""

SYNONYMS: dict[str, frozenset[str]] = {}
"""The stems of the synonyms of each stem."""

for _line in _SYNONYM_GROUPS.split("\n"):
    _group = frozenset(stem(word) for word in _line.split())
    for _stem in _group:
        SYNONYMS[_stem] = SYNONYMS.get(_stem, frozenset()) | (_group - {_stem})


class Action(IntEnum):
    """What a verb does to its object: the one thing that a search must not get wrong."""

    UNKNOWN = 0
    READ = 1
    CREATE = 2
    UPDATE = 3
    DELETE = 4


_ACTION_VERBS = {
    Action.READ: "list enumerate browse search find query get fetch retrieve read obtain",
    Action.CREATE: "create add new insert make",
    Action.UPDATE: "update edit modify change patch rename",
    Action.DELETE: "delete remove drop erase destroy",
}
_ACTIONS = {stem(verb): action for action, verbs in _ACTION_VERBS.items() for verb in verbs.split()}


def action_of(text: str, first_words: int) -> Action:
    """Return what the first verb among the first words of a text does; `UNKNOWN` if none is a verb that is known."""
    return next((_ACTIONS[word] for word in islice(words_of(text), first_words) if word in _ACTIONS), Action.UNKNOWN)


MAX_QUERY_CHARS = 4000
"""The rest of a query is ignored."""

_MAX_WORDS = 512
_VERB_WORDS = 3
"""A request names its verb first; later in it such a word is mostly part of an object ("a new file")."""
_MAX_CLAUSES = 12
_MIN_CLAUSE_WORDS = 3
"""A shorter clause is joined with the next: "red, green and blue shoes" is one thing."""
_CLAUSE_END = re.compile(r"[.?!,](?=\s|$)|[;\n\u3001\u3002\uff01\uff0c\uff1f]|\b(?:and|then|also)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query and its clauses."""

    texts: Sequence[str]
    """The whole query, then its clauses if it has several."""
    words: Sequence[str]
    """The distinct words of the whole query, in order."""
    words_by_text: Sequence[frozenset[str]]
    """The distinct words of each of `texts`."""
    action: Action
    """What it asks for; `UNKNOWN` for a query of several clauses, which may ask for several actions."""

    @classmethod
    def parse(cls, query: str) -> "ParsedQuery":
        query = query[:MAX_QUERY_CHARS]
        texts = [query, *clauses_of(query)]
        words = dict.fromkeys(islice(words_of(query), _MAX_WORDS))
        return cls(
            texts,
            list(words),
            [frozenset(words), *(frozenset(words_of(text)) for text in texts[1:])],
            action_of(query, _VERB_WORDS) if len(texts) == 1 else Action.UNKNOWN,
        )


def clauses_of(query: str) -> list[str]:
    """Return the clauses of a query; an empty list if there is only one."""
    clauses: list[str] = []
    begun = ""
    for part in _CLAUSE_END.split(query[:MAX_QUERY_CHARS]):
        begun = f"{begun} {part.strip()}".strip()
        if len(set(words_of(begun))) >= _MIN_CLAUSE_WORDS:
            clauses.append(begun)
            begun = ""
    if begun and clauses:
        clauses[-1] = f"{clauses[-1]} {begun}"
    if len(clauses) <= _MAX_CLAUSES:
        return clauses if len(clauses) > 1 else []
    # Neighbors are joined, so that the last step of a long task counts like its first.
    joined = [""] * _MAX_CLAUSES
    for number, clause in enumerate(clauses):
        group = number * _MAX_CLAUSES // len(clauses)
        joined[group] = f"{joined[group]} {clause}".strip()
    return joined
