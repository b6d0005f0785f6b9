"""Documents that are made to end their reader: the gateway refuses them, and goes on."""

from pathlib import Path

import pytest

from tests.hostile.attacks import attack
from toolpost.parts.openapi import document
from toolpost.parts.openapi.document import BadDocument, load_document

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


@attack("stranger", "hang the process that reads a document", "it is killed, and the document refused")
async def test_a_document_that_hangs_its_reader_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toolpost_test_hang.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(document, "YAML_PROCESS", "toolpost_test_hang")
    monkeypatch.setattr(document, "PARSE_S", 0.2)
    (tmp_path / "api.yaml").write_text("openapi: 3.0.0\npaths: {}\n")
    with pytest.raises(BadDocument, match="too much memory or time"):
        await load_document("api.yaml", project=tmp_path, place="test")


@attack("stranger", "repeat a text of a document a million times by aliases", "it is refused before it is in memory")
async def test_a_document_whose_aliases_stand_for_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "ANSWER_LIMIT_BYTES", 4 * document.CHUNK_BYTES)
    repeated = f"a: &a {'x' * 1_000}\nb: [{'*a,' * 100_000}]\n"
    (tmp_path / "api.yaml").write_text(f"openapi: 3.0.0\npaths: {{}}\n{repeated}")
    with pytest.raises(BadDocument, match="aliases stand for more than 4 MB"):
        await load_document("api.yaml", project=tmp_path, place="test")


async def test_an_answer_without_an_end_is_not_read_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toolpost_test_endless.py").write_text(
        "import sys, time\nwhile True:\n    sys.stdout.write('x' * 1_000_000)\n    time.sleep(0.1)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(document, "YAML_PROCESS", "toolpost_test_endless")
    monkeypatch.setattr(document, "PARSE_S", 40.0)
    monkeypatch.setattr(document, "ANSWER_LIMIT_BYTES", 4 * document.CHUNK_BYTES)
    (tmp_path / "api.yaml").write_text("openapi: 3.0.0\npaths: {}\n")
    with pytest.raises(BadDocument, match="more than 4 MB"):
        await load_document("api.yaml", project=tmp_path, place="test")


async def test_json_that_is_too_deep_is_not_tried_as_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "YAML_PROCESS", "toolpost_test_that_does_not_exist")
    (tmp_path / "deep").write_bytes(DEEP["JSON"])
    with pytest.raises(BadDocument, match="nested too deeply"):
        await load_document("deep", project=tmp_path, place="test")


REFUSED = {
    "UTF-16": ("openapi: 3.0.0\npaths: {}\n".encode("utf-16"), "can't decode"),
    "digits": (b'{"openapi": "3.0.0", "paths": {}, "x": ' + b"1" * 5_000 + b"}", "digits"),
    "hexadecimal digits": (b"openapi: 3.0.0\npaths: {}\nx: 0x" + b"f" * 50_000, "more than 1000 digits"),
    "a code": (b"openapi: 3.0.0\npaths: {}\nx: !!python/object/apply:os.abort []\n", "constructor"),
    "a tag": (b"openapi: 3.0.0\npaths: {}\nx: !!bool 7\n", "does not fit its tag"),
    "another tag": (b"openapi: 3.0.0\npaths: {}\nx: !!timestamp 7\n", "does not fit its tag"),
    "aliases of aliases": (
        b"openapi: 3.0.0\npaths: {}\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
        + b"".join(b"a%d: &a%d [%s]\n" % (each, each, b",".join([b"*a%d" % (each - 1)] * 10)) for each in range(1, 9)),
        "aliases stand for more than",
    ),
    "itself": (b"openapi: 3.0.0\npaths: {}\nx: &a [*a]\n", "contains itself"),
}


@attack("stranger", "write values that YAML readers cannot bear", "the document is refused, with the reason")
@pytest.mark.parametrize("kind", REFUSED)
async def test_a_document_that_cannot_be_read_is_refused_with_the_reason(kind: str, tmp_path: Path) -> None:
    data, reason = REFUSED[kind]
    (tmp_path / "api.yaml").write_bytes(data)
    with pytest.raises(BadDocument, match=reason):
        await load_document("api.yaml", project=tmp_path, place="test")


async def test_yaml_is_read_in_a_process_apart(tmp_path: Path) -> None:
    (tmp_path / "api.yaml").write_text("openapi: 3.0.0\ninfo: {title: Größe, version: 012}\npaths: {}\n")
    found = await load_document("api.yaml", project=tmp_path, place="test")
    assert found.raw == {"openapi": "3.0.0", "info": {"title": "Größe", "version": 12}, "paths": {}}
    assert document.parse_document((tmp_path / "api.yaml").read_bytes(), "test").digest == found.digest
    (tmp_path / "api.yaml").write_text("openapi: [")
    with pytest.raises(BadDocument, match="neither JSON nor YAML"):
        await load_document("api.yaml", project=tmp_path, place="test")
