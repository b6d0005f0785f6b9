"""A sentence model beside the ranking: a real one, as small as can be, through onnxruntime and a real client."""

import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.discovery.asking import ask, names_of
from tests.upstreams.behind import MEMORY, gateway, until
from tests.upstreams.changing import Changing
from tests.ways import BOTH, QUICK_WAYS, Way
from toolpost import Plugin
from toolpost.app import open_app
from toolpost.cli.doctor.setup import check_setup
from toolpost.discovery.embedder import Embedder, EmbeddingModel, score
from toolpost.discovery.search import RankedTool
from toolpost.settings import Config, DiscoverySettings

pytestmark = pytest.mark.anyio

WORDS = ["[UNK]", "[PAD]", "zorbit", "quendle", "report"]
MEANINGS = np.array([[0, 0, 0.1], [9, 9, 9], [1, 0, 0], [1, 0, 0], [0, 0.2, 0]], np.float32)
"""What no search can know: that a zorbit is a quendle. Padding would spoil every text that it was counted in."""

ROOMS = ("attic", "barn", "cellar", "den", "foyer", "garage", "hall", "kitchen", "loft", "pantry")


def write_model(folder: Path, *, pooled: bool = False) -> Path:
    """Write a model that looks each word up in a table: a vector for each word, or one for each text."""
    folder.mkdir()
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    names = ["input_ids", "attention_mask"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "words"]) for name in names]
    shape: list[Any] = ["texts", 3] if pooled else ["texts", "words", 3]
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["each" if pooled else "found"])]
    constants = [numpy_helper.from_array(MEANINGS, "table")]
    if pooled:
        nodes.append(helper.make_node("ReduceMean", ["each", "axis"], ["found"], keepdims=0))
        constants.append(numpy_helper.from_array(np.array([1], np.int64), "axis"))
    output = helper.make_tensor_value_info("found", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "words", inputs, [output], constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), folder / "model.onnx"
    )
    return folder


def house() -> Plugin:
    """Twenty tools that are much alike; one of them is about quendles."""
    plugin = Plugin("house")
    for number in range(20):
        room = ROOMS[number % len(ROOMS)]

        async def look() -> str:
            return "seen"

        look.__doc__ = f"A report of the {'quendle' if number == 13 else room}."
        plugin.tool(name=f"look_{number:02}")(look)
    return plugin


def is_full(embedder: Embedder) -> bool:
    return embedder.size == 20


def with_model(folder: Path) -> Config:
    return msgspec.structs.replace(BOTH, discovery=DiscoverySettings(mode="both", embedder=str(folder)))


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_tool_is_found_by_what_the_model_knows(way: Way, tmp_path: Path) -> None:
    found = []
    for config in (BOTH, with_model(write_model(tmp_path / "model"))):
        async with open_app(config, plugins=[house()], bundled=False) as app, way.client_of(app) as client:
            await ask(client, "report")
            if (embedder := app.finder._embedder) is not None:
                await until(partial(is_full, embedder))
            found.append(names_of(await ask(client, "zorbit report", limit=1, forceRefresh=True)))

    without, with_it = found
    assert without != ["house__look_13"]
    assert with_it == ["house__look_13"]


@pytest.mark.wire
async def test_tools_that_change_are_embedded_anew(tmp_path: Path) -> None:
    maps = Changing(tmp_path)
    tool = {"name": "x", "inputSchema": {"type": "object"}}
    maps.lists(*({**tool, "name": f"t{n}", "description": f"A report of the {ROOMS[n]}."} for n in range(5)))
    config = with_model(write_model(tmp_path / "model"))
    async with gateway(maps.spec(), config=config) as (app, client):
        await ask(client, "report")
        embedder: Any = app.finder._embedder
        await until(lambda: embedder.size == 5)
        before = dict(embedder._vectors)
        maps.lists(
            *({**tool, "name": f"t{n}", "description": f"A report of the {ROOMS[n]}."} for n in range(3)),
            {**tool, "name": "t3", "description": "A report of the quendle."},
        )
        await until(lambda: embedder.size == 4 and embedder._vectors.get("maps__t3", [""])[0] != before["maps__t3"][0])
        found = await ask(client, "zorbit report", limit=1, forceRefresh=True)

        assert names_of(found) == ["maps__t3"]
        assert embedder._vectors["maps__t0"] is before["maps__t0"], "what has not changed is not embedded again"


def take_extra_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)


def take_tokenizer_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tokenizer.json").unlink()


def spoil_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "model.onnx").write_bytes(b"no model")


@pytest.mark.parametrize(
    ("spoil", "told", "hint"),
    [
        (take_extra_away, "`onnxruntime` is not installed", "pip install 'toolpost[embeddings]'"),
        (take_tokenizer_away, "does not contain a sentence model", "tokenizer.json"),
        (spoil_model, "does not work", None),
    ],
)
async def test_a_search_goes_on_without_a_model_and_the_doctor_says_why(
    spoil: Any,
    told: str,
    hint: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = write_model(tmp_path / "model")
    spoil(folder, monkeypatch)
    config = with_model(folder)
    with caplog.at_level(logging.WARNING, "toolpost.discovery"):
        async with open_app(config, plugins=[house()], bundled=False) as app, MEMORY.client_of(app) as client:
            found = await ask(client, "report of the pantry", limit=1)
            await until(lambda: caplog.records)
            again = await ask(client, "report of the pantry", limit=1, forceRefresh=True)
    findings = {finding.check: finding for finding in (await check_setup(config, None, [])).findings}

    assert names_of(found) == names_of(again)
    assert names_of(found)[0] in ("house__look_09", "house__look_19")
    assert "embedder failed" in caplog.records[0].getMessage()
    assert told in findings["embedder"].message
    assert findings["embedder"].level.value == "problem"
    assert (hint or "") in (findings["embedder"].hint or "")


async def test_the_doctor_says_that_a_model_works(tmp_path: Path) -> None:
    config = with_model(write_model(tmp_path / "model"))
    findings = {finding.check: finding for finding in (await check_setup(config, None, [])).findings}

    assert findings["embedder"].level.value == "ok"


@pytest.mark.parametrize("pooled", [False, True])
def test_a_text_has_one_vector_whatever_it_is_embedded_beside(pooled: bool, tmp_path: Path) -> None:
    model = EmbeddingModel.load(write_model(tmp_path / "model", pooled=pooled))
    (alone,) = model.embed(["zorbit"])
    long, empty = model.embed(["report " * 100_000, ""])

    assert np.allclose(alone, [1, 0, 0])
    assert np.allclose(long, [0, 1, 0])
    assert np.isfinite(empty).all()
    if not pooled:
        assert np.allclose(model.embed(["zorbit", "report report report"])[0], alone), "padding does not count"


def test_a_tool_without_a_vector_keeps_its_score() -> None:
    hits = [RankedTool(name="a", score=0.9), RankedTool(name="b", score=0.5), RankedTool(name="c", score=0.2)]
    near, far = np.array([1, 0], np.float32), np.array([-1, 0], np.float32)
    scored = score(hits, {"a": far, "c": near}, np.array([[1, 0]], np.float32))

    assert {hit.name: round(hit.score, 3) for hit in scored} == {"a": 0.54, "b": 0.5, "c": 0.48}
    assert [hit.name for hit in scored] == ["a", "b", "c"]
    assert score(hits, {}, near[None]) == hits
