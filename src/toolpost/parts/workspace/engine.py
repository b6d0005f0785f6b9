"""The full-text index underneath: its fields, what a chunk becomes in it, and how it is opened."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from toolpost.parts.workspace import optional
from toolpost.parts.workspace.chunks import Chunk
from toolpost.parts.workspace.languages import Language
from toolpost.parts.workspace.words import LONGEST, compound_parts, spelled

FORMAT: Final = 3
"""Rises when what is kept changes: an index of another format is built anew."""

HEAP_BYTES: Final = 96 * 1024 * 1024

_CODE: Final = "toolpost_code"
_PROSE: Final = "toolpost_prose"


class Stored(msgspec.Struct, array_like=True, frozen=True):
    """What is kept of a chunk beside its words."""

    start: int
    end: int
    line: int
    kind: str
    name: str
    scope: str
    signature: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A chunk as the index found it."""

    path: str
    language: str
    score: float
    stored: Stored


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Stored).decode


@cache
def schema() -> Any:
    """Return the fields."""
    builder = optional.tantivy().SchemaBuilder()
    builder.add_text_field("path", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("language", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("family", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("kind", tokenizer_name="raw", index_option="basic")
    # A name as it is written, and without its capitals; with its scope it may be filtered by.
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
    """Return how each kind of text becomes words."""
    tantivy = optional.tantivy()
    filters = tantivy.Filter
    code = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.regex(r"\w+"))
    prose = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    return {
        _CODE: code.filter(filters.lowercase()).filter(filters.remove_long(LONGEST)).build(),
        _PROSE: prose.filter(filters.lowercase())
        .filter(filters.remove_long(LONGEST))
        .filter(filters.stemmer("english"))
        .build(),
    }


def code_words(text: str) -> list[str]:
    """Return the words of a text as the index holds those of code."""
    words: list[str] = analyzers()[_CODE].analyze(text)
    return words


def prose_words(text: str) -> list[str]:
    """Return the words of a text as the index holds those of prose: stems."""
    words: list[str] = analyzers()[_PROSE].analyze(text)
    return words


def open_engine(folder: Path) -> Any:
    """Open the index in a folder, or make an empty one there."""
    index = optional.tantivy().Index(schema(), path=str(folder))
    for name, analyzer in analyzers().items():
        index.register_tokenizer(name, analyzer)
    return index


def document_of(chunk: Chunk, path: str, language: Language) -> Any:
    """Make of a chunk what the index takes."""
    document = optional.tantivy().Document()
    document.add_text("path", path)
    document.add_text("language", language.name)
    document.add_text("family", language.family)
    document.add_text("kind", chunk.kind)
    document.add_text("path_words", spelled(path))
    symbol = chunk.symbol
    if symbol is not None:
        qualified = f"{symbol.scope}.{symbol.name}" if symbol.scope else symbol.name
        for name in {symbol.name, qualified}:
            document.add_text("symbol", name)
            document.add_text("name", name.lower())
        document.add_text("name_words", spelled(qualified))
        if symbol.doc:
            document.add_text("doc", symbol.doc)
    if language.family == "prose":
        document.add_text("doc", chunk.text)
    # Whole identifiers, and their parts among them: what is found by a part is found by the same field.
    document.add_text("text", chunk.text)
    if parts := compound_parts(chunk.text):
        document.add_text("text", parts)
    document.add_bytes("stored", _encode(stored_of(chunk)))
    return document


def stored_of(chunk: Chunk) -> Stored:
    """Return what is kept of a chunk."""
    symbol = chunk.symbol
    if symbol is None:
        return Stored(chunk.start, chunk.end, chunk.start, "text", "", "", "")
    return Stored(symbol.start, symbol.end, symbol.line, symbol.kind, symbol.name, symbol.scope, symbol.signature)


def entry_of(document: Any, score: float) -> Entry:
    """Read a chunk back."""
    return Entry(
        path=document.get_first("path"),
        language=document.get_first("language"),
        score=score,
        stored=_decode(bytes(document.get_first("stored"))),
    )
