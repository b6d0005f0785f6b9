"""An optional sentence model for searches, from ONNX files on disk (`discovery.embedder`).

The model takes milliseconds for each text, too long to read every tool during a search. So tools are embedded in the
background, in a thread, after each change of the catalog; their vectors stay in memory, a search embeds only its query, and
only the best tools of the local ranking are scored again. While the model loads, if it fails, and for a tool that has no
vector yet, the local score counts.

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
from toolpost.discovery.search import RankedTool, Ranking
from toolpost.discovery.search.words import clauses_of
from toolpost.discovery.snapshot import Snapshot

_log = logging.getLogger("toolpost.discovery")

SHARE: Final = 0.4
"""The weight of the model's cosine in a score."""

PIECES_LIMIT: Final = 256
"""How many wordpieces of a text the model reads; small sentence models are not trained on longer ones."""

_BATCH: Final = 16
_MODEL_FILES: Final = ("model.onnx", "onnx/model.onnx")
_TOKENIZER_FILE: Final = "tokenizer.json"

Vectors = NDArray[np.float32]


class EmbeddingModel:
    """A sentence model. Its methods block: call them in a thread."""

    def __init__(self, session: Any, tokenizer: Any) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._inputs = {entry.name for entry in session.get_inputs()}

    @classmethod
    def load(cls, folder: Path) -> "EmbeddingModel":
        """Read `model.onnx` (or `onnx/model.onnx`) and `tokenizer.json`, and embed a text as a test.

        Raises `BadConfiguration` if a file is missing or does not work, `CapabilityMissing` if a library is not installed.
        """
        path = next((folder / name for name in _MODEL_FILES if (folder / name).is_file()), None)
        if path is None or not (folder / _TOKENIZER_FILE).is_file():
            raise BadConfiguration(
                f"discovery.embedder: {folder} does not contain a sentence model.",
                hint=f"it needs {_MODEL_FILES[0]} or {_MODEL_FILES[1]}, and {_TOKENIZER_FILE}",
            )
        runtime, tokenizers = _import_optional("onnxruntime"), _import_optional("tokenizers")
        try:
            options = runtime.SessionOptions()
            # One thread: more would take the cores from calls.
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
        """Return one row of unit length for each text; if the model outputs a vector for each wordpiece, their mean."""
        encoded = self._tokenizer.encode_batch(list(texts))
        inputs = {
            "input_ids": np.array([one.ids for one in encoded], np.int64),
            "attention_mask": np.array([one.attention_mask for one in encoded], np.int64),
            "token_type_ids": np.array([one.type_ids for one in encoded], np.int64),
        }
        output = self._session.run(None, {name: value for name, value in inputs.items() if name in self._inputs})[0]
        if output.ndim == 3:
            mask = inputs["attention_mask"][:, :, None]
            output = (output * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)
        vectors: Vectors = output.astype(np.float32)
        if vectors.shape[0] != len(texts) or vectors.ndim != 2 or not np.isfinite(vectors).all():
            raise ValueError(f"its first output has the shape {output.shape}, not one vector for each text")
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        return vectors


class Embedder:
    """Keeps a vector of every tool in memory, and adds the model's opinion to a ranking."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model: EmbeddingModel | None = None
        self._vectors: dict[ToolName, tuple[str, Vectors]] = {}
        """By name: the digest of the definition that was embedded, and its vector."""
        self._snapshot: Snapshot | None = None
        self._has_changed = anyio.Event()
        # Separate limiters: a search waits neither for the embedding of tools nor for plugins in the default thread pool.
        self._query_threads = CapacityLimiter(2)
        self._tool_threads = CapacityLimiter(1)

    @property
    def size(self) -> int:
        """How many tools have a vector."""
        return len(self._vectors)

    def take(self, snapshot: Snapshot) -> None:
        """Switch to this snapshot; its new tools are embedded by `run`."""
        self._snapshot = snapshot
        self._has_changed.set()

    async def run(self) -> None:
        """Load the model once there is a snapshot, and embed the tools of each snapshot, until cancelled."""
        await self._has_changed.wait()
        try:
            self._model = await to_thread.run_sync(
                EmbeddingModel.load, self._folder, limiter=self._tool_threads, abandon_on_cancel=True
            )
            while True:
                self._has_changed = anyio.Event()
                if self._snapshot is not None:
                    await self._embed_tools(self._model, self._snapshot)
                await self._has_changed.wait()
        except Exception as error:  # noqa: BLE001 (searches work without it; `toolpost doctor` reports the same error)
            self._give_up(error)

    async def adjust(self, query: str, ranking: Ranking) -> Ranking:
        """Return the ranking with the model's score mixed in; unchanged if the model is not ready or fails."""
        model = self._model
        if model is None or not ranking.hits or not self._vectors:
            return ranking
        # Each tool is compared with the clause that it fits best.
        texts = clauses_of(query) or [query]
        try:
            query_vectors = await to_thread.run_sync(model.embed, texts, limiter=self._query_threads)
        except Exception as error:  # noqa: BLE001
            self._give_up(error)
            return ranking
        vectors = {hit.name: entry[1] for hit in ranking.hits if (entry := self._vectors.get(ToolName(hit.name)))}
        return replace(ranking, hits=score(ranking.hits, vectors, query_vectors))

    async def _embed_tools(self, model: EmbeddingModel, snapshot: Snapshot) -> None:
        """Embed new and changed tools; return early if there is another snapshot."""
        began = time.perf_counter()
        entries = snapshot.entries
        # Old vectors are dropped first: a tool must not be scored by a definition that it no longer has.
        self._vectors = {
            name: entry for name, entry in self._vectors.items() if name in entries and entry[0] == entries[name].digest
        }
        texts = {name: snapshot.text_of(name) for name in entries if name not in self._vectors}
        # Sorted by length, because a batch is padded to its longest text.
        names = sorted(texts, key=lambda name: len(texts[name]))
        for start in range(0, len(names), _BATCH):
            if self._has_changed.is_set():
                return
            batch = names[start : start + _BATCH]
            vectors = await to_thread.run_sync(
                model.embed, [texts[name] for name in batch], limiter=self._tool_threads, abandon_on_cancel=True
            )
            self._vectors |= {name: (entries[name].digest, vector) for name, vector in zip(batch, vectors, strict=True)}
        if names:
            took_s = round(time.perf_counter() - began, 1)
            event(_log, logging.INFO, "tools embedded", tools=len(names), tookS=took_s)

    def _give_up(self, error: Exception) -> None:
        self._model = None
        event(_log, logging.WARNING, "embedder failed; the ranking without it stands", reason=str(error)[:300])


def score(hits: Sequence[RankedTool], vectors: Mapping[str, Vectors], query_vectors: Vectors) -> Sequence[RankedTool]:
    """Mix into each score the cosine to the nearest row of `query_vectors`; a tool without a vector keeps its score."""
    if not vectors:
        return hits
    cosines = np.maximum(np.stack(list(vectors.values())) @ query_vectors.T, 0)
    nearness = (cosines / np.maximum(cosines.max(axis=0), 1e-9)).max(axis=1)
    # Scaled to the best score, because `cut` keeps tools by how far their score is behind the best.
    best = max(hit.score for hit in hits)
    parts = dict(zip(vectors, (SHARE * best * nearness).tolist(), strict=True))
    scored = [
        replace(hit, score=(1 - SHARE) * hit.score + parts[hit.name]) if hit.name in parts else hit for hit in hits
    ]
    return sorted(scored, key=lambda hit: (-hit.score, hit.name))


def _import_optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CapabilityMissing(
            f"discovery.embedder: `{name}` is not installed.", hint="pip install 'toolpost[embeddings]'", module=name
        ) from error
