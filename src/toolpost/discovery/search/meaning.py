"""Meaning without a neural network: a text's vector is the sum of its wordpieces' rows in a table made beforehand."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

DIMENSIONS: Final = 256
_MODEL: Final = files("toolpost.discovery.search") / "model"
_AT_ONCE: Final = 256
_MOST_PIECES: Final = 256
_LONGEST_WORD: Final = 40
_HUMPS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+")
_WORDS: Final = re.compile(r"[^\W_]+")
_HAN: Final = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")


def vectors_of(texts: Iterable[str]) -> Vectors:
    """Embed texts: one row of unit length each, or of zeros where nothing of a text is known."""
    pieces = [pieces_of(text) for text in texts]
    found = np.zeros((len(pieces), DIMENSIONS), dtype=np.float32)
    for start in range(0, len(pieces), _AT_ONCE):
        _add_up(pieces[start : start + _AT_ONCE], found[start : start + _AT_ONCE])
    return found


def cosines_of(vectors: Vectors, wanted: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compare one vector with many."""
    # Not `@`: BLAS would share so small a piece of work among threads, and wait until a busy machine has run them all.
    found: NDArray[np.float32] = np.einsum("ij,j->i", vectors, wanted)
    return found


def _add_up(pieces: Sequence[Sequence[int]], into: Vectors) -> None:
    table, scale = _table()
    rows = [number for number, some in enumerate(pieces) if some]
    if not rows:
        return
    ids = np.fromiter((piece for row in rows for piece in pieces[row]), dtype=np.int32)
    lengths = np.fromiter((len(pieces[row]) for row in rows), dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    sums = np.add.reduceat(table[ids] * scale[ids], starts, axis=0)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    into[rows] = sums / np.maximum(norms, 1e-9)


@cache
def _table() -> tuple[NDArray[np.int8], Vectors]:
    with (_MODEL / "static_held_256.npz").open("rb") as file, np.load(file) as arrays:
        return arrays["W"], arrays["scale"]


@cache
def _vocabulary() -> dict[str, int]:
    lines = (_MODEL / "vocab.txt").read_text(encoding="utf-8").splitlines()
    return {piece: number for number, piece in enumerate(lines)}


def pieces_of(text: str) -> list[int]:
    """Return the numbers of a text's wordpieces; a word that is not made of known ones has none."""
    spaced = _HUMPS.sub(" ", text)
    if not spaced.isascii():
        spaced = _HAN.sub(r" \1 ", unicodedata.normalize("NFKC", spaced))
    found: list[int] = []
    for word in _WORDS.findall(spaced):
        found += _word_pieces(word[:_LONGEST_WORD])
        if len(found) >= _MOST_PIECES:
            break
    return found[:_MOST_PIECES]


@lru_cache(maxsize=65536)
def _word_pieces(word: str) -> tuple[int, ...]:
    word = word.lower()
    if not word.isascii():
        word = "".join(letter for letter in unicodedata.normalize("NFD", word) if not unicodedata.combining(letter))
    vocabulary = _vocabulary()
    found: list[int] = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            if (piece := vocabulary.get(prefix + word[start:end])) is not None:
                found.append(piece)
                start = end
                break
        else:
            return ()
    return tuple(found)
