"""The full-text index (tantivy): its fields, its words, and the conversion of chunks to documents and back.

An identifier is indexed whole and by its parts: `getHTTPUser` is found as `gethttpuser` and as `get`, `http`, `user`.
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from toolpost.parts.workspace import optional
from toolpost.parts.workspace.languages import Language
from toolpost.parts.workspace.symbols import Chunk

FORMAT: Final = 3
"""Increased when fields or stored values change: an index of another format is rebuilt."""

HEAP_BYTES: Final = 96 * 1024 * 1024

WORD: Final = re.compile(r"\w+")
MAX_WORD_CHARS: Final = 64
"""Longer words are not indexed: keys, hashes and encoded data."""

_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_CODE: Final = "toolpost_code"
_PROSE: Final = "toolpost_prose"


class ChunkInfo(msgspec.Struct, array_like=True, frozen=True):
    """A chunk in the index, apart from its words. Lines count from 1."""

    start: int
    end: int
    line: int
    """The line of the symbol's name."""
    kind: str
    name: str
    scope: str
    """The qualified name of what encloses it, such as a class; empty at the top of a file."""
    signature: str

    @property
    def qualified_name(self) -> str:
        return f"{self.scope}.{self.name}" if self.scope else self.name


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    """A chunk found by a query, as it was indexed."""

    path: str
    language: str
    score: float
    stored: ChunkInfo


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ChunkInfo).decode


@lru_cache(maxsize=1 << 16)
def parts_of(identifier: str) -> tuple[str, ...]:
    """Split one identifier: `getHTTPUser_by2` is get, http, user, by, 2."""
    return tuple(part.lower() for part in _PART.findall(identifier))


@lru_cache(maxsize=1 << 18)
def _split_compound(word: str) -> str:
    """Return the parts of a compound identifier; an empty string for any other word."""
    parts = parts_of(word) if len(word) <= MAX_WORD_CHARS else ()
    return " ".join(parts) if len(parts) > 1 else ""


def compound_parts(text: str) -> str:
    """Return the parts of every compound identifier in a text, which are indexed in addition to the text."""
    return " ".join(filter(None, map(_split_compound, set(WORD.findall(text)))))


def split_words(name: str) -> str:
    """Write a name or a path as separate words."""
    return " ".join(part for word in WORD.findall(name) for part in parts_of(word))


@cache
def schema() -> Any:
    builder = optional.tantivy().SchemaBuilder()
    builder.add_text_field("path", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("language", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("family", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("kind", tokenizer_name="raw", index_option="basic")
    # `symbol` is the name as written, for filters and exact matches; `name` is the same in lower case.
    builder.add_text_field("symbol", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("name", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("name_words", tokenizer_name=_PROSE, index_option="freq")
    builder.add_text_field("doc", tokenizer_name=_PROSE, index_option="freq")
    builder.add_text_field("text", tokenizer_name=_CODE, index_option="freq")
    builder.add_text_field("path_words", tokenizer_name=_PROSE, index_option="freq")
    builder.add_bytes_field("stored", stored=True)
    return builder.build()


@cache
def analyzers() -> dict[str, Any]:
    """Return the analyzers by tokenizer name: words of code in lower case, words of prose as stems."""
    tantivy = optional.tantivy()
    filters = tantivy.Filter
    code = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.regex(r"\w+"))
    prose = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    return {
        _CODE: code.filter(filters.lowercase()).filter(filters.remove_long(MAX_WORD_CHARS)).build(),
        _PROSE: prose.filter(filters.lowercase())
        .filter(filters.remove_long(MAX_WORD_CHARS))
        .filter(filters.stemmer("english"))
        .build(),
    }


def code_words(text: str) -> list[str]:
    """Split a text into words as the `text` field of the index is split."""
    words: list[str] = analyzers()[_CODE].analyze(text)
    return words


def prose_words(text: str) -> list[str]:
    """Return the stems of a text as the index has those of prose."""
    words: list[str] = analyzers()[_PROSE].analyze(text)
    return words


def open_engine(folder: Path) -> Any:
    """Open the tantivy index in a folder; create an empty one if there is none."""
    index = optional.tantivy().Index(schema(), path=str(folder))
    for name, analyzer in analyzers().items():
        index.register_tokenizer(name, analyzer)
    return index


def document_of(chunk: Chunk, path: str, language: Language) -> Any:
    """Make the tantivy document of a chunk."""
    document = optional.tantivy().Document()
    document.add_text("path", path)
    document.add_text("language", language.name)
    document.add_text("family", language.family)
    document.add_text("kind", chunk.kind)
    document.add_text("path_words", split_words(path))
    symbol = chunk.symbol
    if symbol is not None:
        qualified = f"{symbol.scope}.{symbol.name}" if symbol.scope else symbol.name
        for name in {symbol.name, qualified}:
            document.add_text("symbol", name)
            document.add_text("name", name.lower())
        document.add_text("name_words", split_words(qualified))
        if symbol.doc:
            document.add_text("doc", symbol.doc)
    if language.family == "prose":
        document.add_text("doc", chunk.text)
    # Whole identifiers and their parts go into the same field, so that one query term finds both.
    document.add_text("text", chunk.text)
    if parts := compound_parts(chunk.text):
        document.add_text("text", parts)
    document.add_bytes("stored", _encode(chunk_info_of(chunk)))
    return document


def chunk_info_of(chunk: Chunk) -> ChunkInfo:
    symbol = chunk.symbol
    if symbol is None:
        return ChunkInfo(chunk.start, chunk.end, chunk.start, "text", "", "", "")
    return ChunkInfo(symbol.start, symbol.end, symbol.line, symbol.kind, symbol.name, symbol.scope, symbol.signature)


def scored_chunk_of(document: Any, score: float) -> ScoredChunk:
    return ScoredChunk(
        path=document.get_first("path"),
        language=document.get_first("language"),
        score=score,
        stored=_decode(bytes(document.get_first("stored"))),
    )
