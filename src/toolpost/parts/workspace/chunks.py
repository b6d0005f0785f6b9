"""Split a file into chunks: each symbol with its own lines, and the text between symbols in pieces.

Example: a class with two methods gives three chunks. The lines of a method belong to the chunk of the method, not of the class.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from toolpost.parts.workspace.languages import Language
from toolpost.parts.workspace.symbols import Symbol, symbols_of

PIECE_LINES: Final = 60
"""The longest piece of text without a symbol."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """A symbol, or a piece of text between symbols; lines count from 1, `end` included."""

    symbol: Symbol | None
    start: int
    end: int
    text: str
    """Its own lines, without those of symbols inside it."""

    @property
    def kind(self) -> str:
        return self.symbol.kind if self.symbol else "text"


def chunks_of(text: str, language: Language) -> list[Chunk]:
    lines = text.split("\n")
    symbols = symbols_of(text.encode("utf-8", "replace"), language)
    owners = _owners(symbols, len(lines))
    own: dict[int, list[str]] = {}
    for number, owner in enumerate(owners):
        if owner >= 0:
            own.setdefault(owner, []).append(lines[number])
    chunks = [
        Chunk(symbol=symbol, start=symbol.start, end=symbol.end, text="\n".join(own.get(index, ())))
        for index, symbol in enumerate(symbols)
    ]
    chunks.extend(
        Chunk(symbol=None, start=start + 1, end=end, text="\n".join(lines[start:end]))
        for start, end in _pieces(lines, owners)
    )
    return chunks


def _owners(symbols: list[Symbol], count: int) -> list[int]:
    """Return for each line the index of the innermost symbol that contains it, or -1."""
    owners = [-1] * count
    # Outer symbols come first, so that inner ones overwrite them.
    for index, symbol in enumerate(symbols):
        start, end = symbol.start - 1, min(symbol.end, count)
        owners[start:end] = [index] * (end - start)
    return owners


def _pieces(lines: list[str], owners: list[int]) -> Iterator[tuple[int, int]]:
    """Yield start and end of the runs of lines outside symbols, without blank lines at either end."""
    start = 0
    while start < len(lines):
        if owners[start] >= 0 or not lines[start].strip():
            start += 1
            continue
        end = start
        while end < len(lines) and owners[end] < 0 and end - start < PIECE_LINES:
            end += 1
        last = end
        while not lines[last - 1].strip():
            last -= 1
        yield start, last
        start = end
