"""An optional sentence model beside the table of meanings: ONNX files that the operator has on disk.

The model is too slow to read every tool during a search (milliseconds a text), so it only scores the best tools of the local
ranking again. Tools are embedded in the background, in a thread, after each change of the catalogue, and their vectors are kept
in memory; a search embeds its query alone. Whatever is missing, the ranking without it stands: the model while it loads or
cannot be loaded, the vector of a tool that is new.

This module needs the extra `toolpost[embeddings]`, and is imported only where `discovery.embedder` is set.
"""

import importlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio
import numpy as np
from anyio import CapacityLimiter, to_thread
from numpy.typing import NDArray

from toolpost.base.events import event
from toolpost.base.ids import ToolName
from toolpost.contracts.errors import BadConfiguration, CapabilityMissing
from toolpost.discovery.search import Hit, Ranking
from toolpost.discovery.search.clauses import clauses_of
from toolpost.discovery.snapshot import Snapshot

_log = logging.getLogger("toolpost.discovery")

SHARE: Final = 0.4
"""The part of the model's cosine in a score."""

PIECES_LIMIT: Final = 256
"""How many wordpieces of a text the model reads; small sentence models are trained on no more."""

_AT_ONCE: Final = 16
_MODEL_FILES: Final = ("model.onnx", "onnx/model.onnx")
_TOKENIZER_FILE: Final = "tokenizer.json"

Vectors = NDArray[np.float32]


class Model:
    """A sentence model: texts in, one vector of unit length each out. Blocks; for threads."""

    def __init__(self, session: Any, tokenizer: Any) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._inputs = {entry.name for entry in session.get_inputs()}

    @classmethod
    def load(cls, folder: Path) -> "Model":
        """Read `model.onnx` (or `onnx/model.onnx`) and `tokenizer.json`, and try them out on a text."""
        path = next((folder / name for name in _MODEL_FILES if (folder / name).is_file()), None)
        if path is None or not (folder / _TOKENIZER_FILE).is_file():
            raise BadConfiguration(
                f"discovery.embedder: {folder} does not hold a sentence model.",
                hint=f"it needs {_MODEL_FILES[0]} or {_MODEL_FILES[1]}, and {_TOKENIZER_FILE}",
            )
        runtime, tokenizers = _module("onnxruntime"), _module("tokenizers")
        try:
            options = runtime.SessionOptions()
            # One thread of its own for a run: more would take the cores from the calls.
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            tokenizer = tokenizers.Tokenizer.from_file(str(folder / _TOKENIZER_FILE))
            tokenizer.enable_truncation(PIECES_LIMIT)
            tokenizer.enable_padding()
            model = cls(session, tokenizer)
            model.embed(["a text"])
        except Exception as error:  # both libraries raise bare exceptions of many kinds
            raise BadConfiguration(f"discovery.embedder: the model in {folder} does not work: {error}") from error
        return model

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a row for each text; a model that gives a vector for each wordpiece has them averaged."""
        encoded = self._tokenizer.encode_batch(list(texts))
        given = {
            "input_ids": np.array([one.ids for one in encoded], np.int64),
            "attention_mask": np.array([one.attention_mask for one in encoded], np.int64),
            "token_type_ids": np.array([one.type_ids for one in encoded], np.int64),
        }
        found = self._session.run(None, {name: value for name, value in given.items() if name in self._inputs})[0]
        if found.ndim == 3:
            mask = given["attention_mask"][:, :, None]
            found = (found * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)
        vectors: Vectors = found.astype(np.float32)
        if vectors.shape[0] != len(texts) or vectors.ndim != 2 or not np.isfinite(vectors).all():
            raise ValueError(f"its first output has the shape {found.shape}, not one vector for each text")
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        return vectors


class Embedder:
    """Keeps the vectors of all tools, and scores candidates by them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model: Model | None = None
        self._vectors: dict[ToolName, tuple[str, Vectors]] = {}
        """By name: the digest of the definition that was embedded, and its vector."""
        self._snapshot: Snapshot | None = None
        self._has_changed = anyio.Event()
        # Searches have threads of their own: neither the embedding of tools nor anybody's tools keep them waiting.
        self._for_queries = CapacityLimiter(2)
        self._for_tools = CapacityLimiter(1)

    @property
    def size(self) -> int:
        """How many tools have a vector."""
        return len(self._vectors)

    def take(self, snapshot: Snapshot) -> None:
        """Embed the tools of another snapshot from now on."""
        self._snapshot = snapshot
        self._has_changed.set()

    async def run(self) -> None:
        """Load the model when the first snapshot is there, and follow the snapshots until cancelled."""
        await self._has_changed.wait()
        try:
            self._model = await to_thread.run_sync(
                Model.load, self._folder, limiter=self._for_tools, abandon_on_cancel=True
            )
            while True:
                self._has_changed = anyio.Event()
                if self._snapshot is not None:
                    await self._follow(self._model, self._snapshot)
                await self._has_changed.wait()
        except Exception as error:  # noqa: BLE001 (a search does without; `toolpost doctor` says the same)
            self._give_up(error)

    async def adjust(self, query: str, ranking: Ranking) -> Ranking:
        """Score the candidates of a ranking again, by their words, the table and the model together."""
        model = self._model
        if model is None or not ranking.hits or not self._vectors:
            return ranking
        # Of a query that asks for several things, each tool is compared with the one that it fits best.
        texts = clauses_of(query) or [query]
        try:
            wanted = await to_thread.run_sync(model.embed, texts, limiter=self._for_queries)
        except Exception as error:  # noqa: BLE001
            self._give_up(error)
            return ranking
        known = {hit.name: found[1] for hit in ranking.hits if (found := self._vectors.get(ToolName(hit.name)))}
        return replace(ranking, hits=score(ranking.hits, known, wanted))

    async def _follow(self, model: Model, snapshot: Snapshot) -> None:
        """Embed what is new or has changed, the short texts first; another snapshot is turned to at once."""
        began = time.perf_counter()
        entries = snapshot.entries
        # What is gone or has changed is forgotten first: a tool is not scored by what it once was.
        self._vectors = {
            name: known for name, known in self._vectors.items() if name in entries and known[0] == entries[name].digest
        }
        texts = {name: snapshot.text_of(name) for name in entries if name not in self._vectors}
        # Texts of like length go together: a batch is padded to its longest.
        names = sorted(texts, key=lambda name: len(texts[name]))
        for start in range(0, len(names), _AT_ONCE):
            if self._has_changed.is_set():
                return
            some = names[start : start + _AT_ONCE]
            vectors = await to_thread.run_sync(
                model.embed, [texts[name] for name in some], limiter=self._for_tools, abandon_on_cancel=True
            )
            self._vectors |= {name: (entries[name].digest, vector) for name, vector in zip(some, vectors, strict=True)}
        if names:
            took_s = round(time.perf_counter() - began, 1)
            event(_log, logging.INFO, "tools embedded", tools=len(names), tookS=took_s)

    def _give_up(self, error: Exception) -> None:
        self._model = None
        event(_log, logging.WARNING, "embedder failed; the ranking without it stands", reason=str(error)[:300])


def score(hits: Sequence[Hit], known: Mapping[str, Vectors], wanted: Vectors) -> Sequence[Hit]:
    """Mix into the scores how near each tool comes to the nearest row of `wanted`; a tool without a vector keeps its score."""
    if not known:
        return hits
    cosines = np.maximum(np.stack(list(known.values())) @ wanted.T, 0)
    nearness = (cosines / np.maximum(cosines.max(axis=0), 1e-9)).max(axis=1)
    # The nearest counts as much as the best score: how many tools are handed out follows from how far each is behind the best.
    best = max(hit.score for hit in hits)
    parts = dict(zip(known, (SHARE * best * nearness).tolist(), strict=True))
    scored = [
        replace(hit, score=(1 - SHARE) * hit.score + parts[hit.name]) if hit.name in parts else hit for hit in hits
    ]
    return sorted(scored, key=lambda hit: (-hit.score, hit.name))


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CapabilityMissing(
            f"discovery.embedder: `{name}` is not installed.", hint="pip install 'toolpost[embeddings]'", module=name
        ) from error
