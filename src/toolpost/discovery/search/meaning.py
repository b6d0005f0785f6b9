"""Text vectors without a neural network at run time: the sum of the rows of a text's wordpieces in a table.

The table in model/ was distilled from a sentence model (`scripts/static_table.py`); it is int8 with one scale for each row. For
example, `listRepos` is split into the words `list` and `Repos`, these into wordpieces of the vocabulary (`list`, `rep`, `##os`),
and the vector of the text is the sum of their rows, scaled to length 1.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolpost.base.normalization import normalize
from toolpost.discovery.search.words import CACHED_WORDS

Vectors = NDArray[np.float32]

DIMENSIONS: Final = 256
_MODEL: Final = files("toolpost.discovery.search") / "model"
_BATCH: Final = 256
_MAX_PIECES: Final = 256
_MAX_WORD_CHARS: Final = 40
_IDENTIFIER_BREAK: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+")
_WORD: Final = re.compile(r"[^\W_]+")
_HAN: Final = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


def vectors_of(texts: Iterable[str]) -> Vectors:
    """Embed texts: one row of unit length for each, or of zeros if the vocabulary has none of its words."""
    pieces = [pieces_of(text) for text in texts]
    vectors = np.zeros((len(pieces), DIMENSIONS), dtype=np.float32)
    for start in range(0, len(pieces), _BATCH):
        _write_sums(pieces[start : start + _BATCH], vectors[start : start + _BATCH])
    return vectors


def cosines_of(vectors: Vectors, query: NDArray[np.float32]) -> NDArray[np.float32]:
    # Not `@`: BLAS would spread this little work over threads, and on a busy machine wait for the slowest of them.
    cosines: NDArray[np.float32] = np.einsum("ij,j->i", vectors, query)
    return cosines


def _write_sums(pieces: Sequence[Sequence[int]], into: Vectors) -> None:
    """Fill one row of `into` for each text that has wordpieces."""
    table, scale = _load_table()
    # All texts of a batch are one sum over slices of one array, without a loop in Python.
    rows = [row for row, ids_of_text in enumerate(pieces) if ids_of_text]
    if not rows:
        return
    ids = np.fromiter((piece for row in rows for piece in pieces[row]), dtype=np.int32)
    lengths = np.fromiter((len(pieces[row]) for row in rows), dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    sums = np.add.reduceat(table[ids] * scale[ids], starts, axis=0)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    into[rows] = sums / np.maximum(norms, 1e-9)


@cache
def _load_table() -> tuple[NDArray[np.int8], Vectors]:
    with (_MODEL / "static_held_256.npz").open("rb") as file, np.load(file) as arrays:
        return arrays["W"], arrays["scale"]


@cache
def _load_vocabulary() -> dict[str, int]:
    lines = (_MODEL / "vocab.txt").read_text(encoding="utf-8").splitlines()
    return {piece: number for number, piece in enumerate(lines)}


def pieces_of(text: str) -> list[int]:
    """Return the wordpiece ids of a text; a word that the vocabulary cannot spell contributes none."""
    spaced = _IDENTIFIER_BREAK.sub(" ", text)
    if not spaced.isascii():
        spaced = _HAN.sub(r" \1 ", normalize("NFKC", spaced))
    pieces: list[int] = []
    for word in _WORD.findall(spaced):
        pieces += _pieces_of_word(word[:_MAX_WORD_CHARS])
        if len(pieces) >= _MAX_PIECES:
            break
    return pieces[:_MAX_PIECES]


@lru_cache(maxsize=CACHED_WORDS)
def _pieces_of_word(word: str) -> tuple[int, ...]:
    """Split greedily, longest piece first, as WordPiece does."""
    word = word.lower()
    if not word.isascii():
        word = "".join(char for char in normalize("NFD", word) if not unicodedata.combining(char))
    vocabulary = _load_vocabulary()
    pieces: list[int] = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            if (piece := vocabulary.get(prefix + word[start:end])) is not None:
                pieces.append(piece)
                start = end
                break
        else:
            # No piece fits: a word that is half spelled would mean something else.
            return ()
    return tuple(pieces)
