"""A file in pieces: each symbol with the lines that are its own, and what stands between them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from toolpost.parts.workspace.languages import Language
from toolpost.parts.workspace.symbols import Symbol, symbols_of

PIECE_LINES: Final = 60
"""How long a piece without a symbol may be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """What is found by a search: a symbol, or a piece of text between symbols."""

    symbol: Symbol | None
    start: int
    end: int
    text: str
    """Its own lines: those of a symbol within it belong to that one."""

    @property
    def kind(self) -> str:
        """What it is."""
        return self.symbol.kind if self.symbol else "text"


def chunks_of(text: str, language: Language) -> list[Chunk]:
    """Take a file apart."""
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
    """Say for each line which symbol it belongs to, the innermost one, or -1; outer symbols come first."""
    owners = [-1] * count
    for index, symbol in enumerate(symbols):
        start, end = symbol.start - 1, min(symbol.end, count)
        owners[start:end] = [index] * (end - start)
    return owners


def _pieces(lines: list[str], owners: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs of lines that belong to no symbol, without blank ones at their ends, none too long."""
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
