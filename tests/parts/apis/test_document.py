"""Documents that are made to end their reader: the gateway refuses them, and goes on."""

from pathlib import Path

import pytest

from tests.hostile.attacks import attack
from toolpost.parts.apis import document
from toolpost.parts.apis.document import BadDocument, load_document

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

DEEP = {
    "lists": b"[" * 50_000,
    "objects": b'{"a":' * 50_000,
    "JSON": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "flow style": b"{a: " * 50_000 + b"1" + b"}" * 50_000,
    "lists of lists": b"- " * 50_000,
    "keys of keys": b"? " * 50_000,
    "indentation": b"".join(b" " * level + b"a:\n" for level in range(2_000)),
}


@attack(
    "stranger", "nest a document so deeply that its reader overflows the stack", "it is refused, in a process apart"
)
@pytest.mark.parametrize("kind", DEEP)
async def test_a_deep_document_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "deep").write_bytes(DEEP[kind])
    with pytest.raises(BadDocument, match="nested too deeply"):
        await load_document("deep", project=tmp_path, place="test")


@attack("stranger", "end the process that reads a document", "the document is refused, and the gateway goes on")
async def test_a_document_that_ends_its_reader_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a depth that nobody has thought of would do.
    (tmp_path / "toolpost_test_fault.py").write_text("import os\nos.abort()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(document, "YAML_PROCESS", "toolpost_test_fault")
    (tmp_path / "api.yaml").write_text("openapi: 3.0.0\npaths: {}\n")
    with pytest.raises(BadDocument, match="too much memory or time"):
        await load_document("api.yaml", project=tmp_path, place="test")


async def test_yaml_is_read_in_a_process_apart(tmp_path: Path) -> None:
    (tmp_path / "api.yaml").write_text("openapi: 3.0.0\ninfo: {title: Größe, version: 012}\npaths: {}\n")
    found = await load_document("api.yaml", project=tmp_path, place="test")
    assert found.raw == {"openapi": "3.0.0", "info": {"title": "Größe", "version": 12}, "paths": {}}
    assert document.parse_document((tmp_path / "api.yaml").read_bytes(), "test").digest == found.digest
    (tmp_path / "api.yaml").write_text("openapi: [")
    with pytest.raises(BadDocument, match="neither JSON nor YAML"):
        await load_document("api.yaml", project=tmp_path, place="test")
