"""Exports and proofs are verified by a single file, by a Python that has no Toolpost, and one flipped bit is found."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile.attacks import slowness
from tests.parts.trail.test_sessions import ANN, thought
from toolpost.cli.main import main as cli
from toolpost.parts.trail import PART
from toolpost.parts.trail.export import encode_line, export_proof, export_session
from toolpost.parts.trail.service import Trail
from toolpost.parts.trail.verify_trail import (
    FORMAT,
    Invalid,
    check_export,
    encode,
    hash_leaf,
    hash_of,
    root_of,
    verifies_signature,
)
from toolpost.store import open_part_store

pytestmark = pytest.mark.anyio

# RFC 8032, section 7.1: tests 1 to 3.
SIGNATURES = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe246"
            "55141438e7a100b"
        ),
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb"
            "00d291612bb0c00"
        ),
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc"
            "027beceea1ec40a"
        ),
    ),
]


async def make_session(folder: Path, *, count: int = 5) -> Path:
    """Make a store with a sealed session; return its path."""
    path = folder / "store.db"
    async with open_part_store(f"sqlite:{path}", "trail", PART.migrations) as store:
        trail = await Trail.open(store)
        await trail.start(ANN.id, "work", "mend the roof", "t-1")
        _, first = await trail.record(ANN, thought("look", type="plan"), "work")
        for number in range(count - 2):
            await trail.record(ANN, thought(f"secret {number}"), "work")
        await trail.record(ANN, thought("mend", type="decision", references=[first.hash]), "work")
        await trail.seal(await trail.find(ANN.id, "work"))
    return path


async def export(path: Path, *, with_content: bool = False) -> list[dict[str, Any]]:
    async with open_part_store(f"sqlite:{path}", "trail", PART.migrations) as store:
        trail = await Trail.open(store)
        session = await trail.find(None, "work")
        return [line async for line in export_session(trail, session, with_content=with_content)]


@pytest.mark.parametrize(("public", "message", "signature"), SIGNATURES)
def test_signatures_are_verified_as_in_the_rfc(public: str, message: str, signature: str) -> None:
    key, text, sig = (bytes.fromhex(each) for each in (public, message, signature))

    assert verifies_signature(key, text, sig)
    assert not verifies_signature(key, text + b"x", sig)
    assert not verifies_signature(key, text, sig[:-1] + bytes([sig[-1] ^ 1]))
    assert not verifies_signature(key, text, b"")
    assert not verifies_signature(b"\xff" * 32, text, sig)
    # s + L would be a second signature of the same message.
    order = 2**252 + 27742317777372353535851937790883648493
    other = sig[:32] + (int.from_bytes(sig[32:], "little") + order).to_bytes(32, "little")
    assert not verifies_signature(key, text, other)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=80))
def test_signatures_agree_with_another_implementation(seed: bytes, message: bytes) -> None:
    key = Ed25519PrivateKey.from_private_bytes(seed)

    assert verifies_signature(key.public_key().public_bytes_raw(), message, key.sign(message))


async def test_contents_are_exported_on_request_only(tmp_path: Path) -> None:
    path = await make_session(tmp_path)
    bare, whole = await export(path), await export(path, with_content=True)

    assert not any(word in json.dumps(bare) for word in ("secret", "mend", "salt"))
    assert [line.get("content") for line in whole[1:-1]] == ["look", "secret 0", "secret 1", "secret 2", "mend"]
    for lines in (bare, whole):
        intact, sealed = check_export(lines)
        assert "5 records of the session work of ann are intact" in intact
        assert "sealed at" in sealed


async def test_any_flipped_bit_is_found(tmp_path: Path) -> None:
    lines = await export(await make_session(tmp_path), with_content=True)
    text = "\n".join(map(encode_line, lines))
    found = 0
    for at in range(len(text)):
        changed = text[:at] + chr(ord(text[at]) ^ (1 << at % 7)) + text[at + 1 :]
        try:
            parsed = [json.loads(line) for line in changed.split("\n")]
            list(check_export(parsed))
        except (Invalid, ValueError, KeyError, TypeError, AttributeError):
            found += 1
        else:
            # What is not covered by a hash does not change what is said.
            assert parsed == lines, changed[max(0, at - 40) : at + 40]
    assert found > 500


async def test_what_is_cut_off_removed_swapped_or_signed_by_another_is_found(tmp_path: Path) -> None:
    lines = await export(await make_session(tmp_path))
    other = {**lines[-1], "public_key": "00" * 32}
    bad = {
        "cut off": [*lines[:-2], lines[-1]],
        "removed": [*lines[:2], *lines[3:]],
        "swapped": [lines[0], lines[2], lines[1], *lines[3:]],
        "first": [lines[0], *lines[2:]],
        "key": [*lines[:-1], other],
    }
    for how, changed in bad.items():
        with pytest.raises(Invalid):
            print(how, list(check_export(changed)))
    with pytest.raises(Invalid, match="and not by"):
        list(check_export(lines, "ab" * 32))
    with pytest.raises(Invalid, match="not sealed"):
        list(check_export(lines[:-1], lines[-1]["public_key"]))
    # Not either where another session, which is sealed, comes after it.
    with pytest.raises(Invalid, match="not sealed"):
        list(check_export([*lines[:-1], *lines], lines[-1]["public_key"]))
    assert "nothing shows that records are missing" in list(check_export(lines[:-1]))[-1]


async def test_a_proof_stands_by_itself(tmp_path: Path) -> None:
    path = await make_session(tmp_path, count=9)
    async with open_part_store(f"sqlite:{path}", "trail", PART.migrations) as store:
        trail = await Trail.open(store)
        session = await trail.find(None, "work")
        proof = await export_proof(trail, session, await trail.prove_inclusion(session, 4))
        consistent = await export_proof(trail, session, await trail.prove_consistency(session, 4))
    assert next(iter(check_export([proof]))) == "record 4 is in the session work"
    assert next(iter(check_export([consistent]))) == "the first 4 records of the session work are as they were"
    for key, value in (
        ("seq", 5),
        ("size", 8),
        ("session_id", "other"),
        ("root", "00" * 32),
        ("proof", proof["proof"][:-1]),
        ("record", proof["record"] | {"author": "bob"}),
        ("seal", proof["seal"] | {"size": 10}),
        ("record_hash", "00" * 32),
    ):
        with pytest.raises(Invalid):
            list(check_export([proof | {key: value}]))
    # One that names the key and has no seal is signed by nothing.
    unsealed = {name: value for name, value in proof.items() if name not in ("seal", "signature")}
    assert list(check_export([proof], proof["public_key"]))
    assert list(check_export([unsealed]))
    with pytest.raises(Invalid, match="not sealed"):
        list(check_export([unsealed], proof["public_key"]))


@pytest.mark.parametrize("kind", ["inclusion", "consistency"])
async def test_any_flipped_bit_of_a_proof_is_found(kind: str, tmp_path: Path) -> None:
    path = await make_session(tmp_path, count=9)
    async with open_part_store(f"sqlite:{path}", "trail", PART.migrations) as store:
        trail = await Trail.open(store)
        session = await trail.find(None, "work")
        made = await (trail.prove_inclusion(session, 4) if kind == "inclusion" else trail.prove_consistency(session, 4))
        proof = await export_proof(trail, session, made)
    text = encode_line(proof).encode()
    # One bit of each byte, another one each time; the signature takes ten milliseconds to be verified.
    for at in range(len(text)):
        changed = text[:at] + bytes([text[at] ^ (1 << at % 8)]) + text[at + 1 :]
        try:
            parsed = json.loads(changed)
            list(check_export([parsed]))
        except (Invalid, ValueError, KeyError, TypeError, AttributeError):
            continue
        assert parsed == proof, changed[max(0, at - 40) : at + 40]


@pytest.mark.wire
def test_the_commands_and_the_verifier_beside_the_export(tmp_path: Path) -> None:
    anyio.run(make_session, tmp_path)
    config = tmp_path / "toolpost.toml"
    config.write_text('[store]\nurl = "sqlite:store.db"\n')

    def run(*words: str, code: int = 0) -> str:
        ran = CliRunner().invoke(cli, ["trail", *words, "--config", str(config)])
        assert ran.exit_code == code, ran.output
        return ran.output

    listed = json.loads(run("show", "--json"))
    records = [json.loads(line) for line in run("show", "work", "--json").splitlines()]
    assert (listed["session_id"], listed["caller"], listed["size"]) == ("work", "ann", 5)
    assert records[0]["content"] == "look"
    assert "mend the roof" in run("show")
    assert "decision" in run("show", "work")
    assert "all 5 records are intact" in run("verify")
    assert json.loads(run("verify", "work", "--json"))["valid"] is True
    out = tmp_path / "out"
    out.mkdir()
    run("export", "work", "-o", str(out / "work.jsonl"))
    run("prove", "work", "3", "-o", str(out / "proof.json"))
    run("verify", "--file", str(out / "work.jsonl"))
    assert "there is no session" in run("show", "nothing", code=2)
    assert "name a RECORD" in run("prove", "work", code=2)
    assert '"line":"session"' in run("export", "work")

    # -I -S: neither the environment nor installed packages.
    verify = [sys.executable, "-I", "-S", "verify_trail.py"]
    sound = subprocess.run([*verify, "work.jsonl", "proof.json"], cwd=out, capture_output=True, text=True, check=True)
    assert "5 records of the session work of ann are intact" in sound.stdout
    assert "record 3 is in the session work" in sound.stdout
    (out / "work.jsonl").write_text((out / "work.jsonl").read_text().replace('"author":"ann"', '"author":"bob"', 1))
    broken = subprocess.run([*verify, "work.jsonl"], cwd=out, capture_output=True, text=True, check=False)
    assert broken.returncode == 1
    assert "record 1 was changed" in broken.stderr
    assert "is not valid" in run("verify", "--file", str(out / "work.jsonl"), code=1)


@pytest.mark.wire
async def test_the_commands_say_what_retention_removed(tmp_path: Path) -> None:
    path = await make_session(tmp_path)
    async with open_part_store(f"sqlite:{path}", "trail", PART.migrations) as store:
        trail = await Trail.open(store)
        session = await trail.seal(await trail.find(None, "work"))
        await trail.apply_retention(-3600)
    config = tmp_path / "toolpost.toml"
    config.write_text('[store]\nurl = "sqlite:store.db"\n')

    def run(*words: str) -> tuple[int, str]:
        ran = CliRunner().invoke(cli, ["trail", *words, "--config", str(config)])
        return ran.exit_code, ran.output

    results = await anyio.to_thread.run_sync(
        lambda: [run(*words) for words in (["show"], ["show", "work"], ["verify"], ["prove", "work", "1"])]
    )
    exported = await anyio.to_thread.run_sync(lambda: run("export", "work", "-o", str(tmp_path / "work.jsonl")))

    assert [code for code, _ in results] == [0, 0, 0, 2]
    (_, listed), (_, shown), (_, verified), (_, refused) = results
    assert "5 (removed)" in listed
    assert "its 5 records were removed" in shown
    assert session.root in shown
    assert "5 more were removed" in verified
    assert "were removed" in refused
    assert (exported[0], (tmp_path / "work.jsonl").exists()) == (2, False)


@pytest.mark.soak
def test_a_hundred_thousand_records_are_verified_in_seconds(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    owner = {"session": "work", "owner": "ann"}
    header = owner | {
        "v": FORMAT,
        "kind": "session",
        "intent": "0" * 64,
        "task_id": None,
        "started_at": "",
        "continues": None,
    }
    head = start = hash_of(header)
    hashes = []
    with (tmp_path / "work.jsonl").open("w") as file:
        file.write(encode_line({"line": "session", "header": header, "hash": start}) + "\n")
        for seq in range(1, 100_001):
            body = {
                "v": FORMAT,
                "kind": "thought",
                "type": "analysis",
                "seq": seq,
                "prev": head,
                "at": "2026-11-17T12:00:00.000Z",
                "author": "ann",
                "agent_id": "a",
                "task_id": "t-1",
                "content": "0" * 64,
                "references": [head] if seq > 1 and seq % 10 == 0 else [],
            }
            head = hash_of(body)
            hashes.append(hash_leaf(bytes.fromhex(head)))
            file.write(encode_line({"line": "record", "body": body, "hash": head}) + "\n")
        root = root_of(hashes).hex()
        seal = owner | {
            "v": FORMAT,
            "kind": "seal",
            "start": start,
            "size": 100_000,
            "head": head,
            "root": root,
            "sealed_at": "",
        }
        signature = __import__("base64").b64encode(key.sign(encode(seal))).decode()
        public = key.public_key().public_bytes_raw().hex()
        file.write(encode_line({"line": "seal", "seal": seal, "signature": signature, "public_key": public}) + "\n")
    verifier = Path(sys.modules["toolpost.parts.trail.verify_trail"].__file__ or "")
    before = os.times()
    subprocess.run([sys.executable, "-I", "-S", str(verifier), "work.jsonl"], cwd=tmp_path, check=True)
    used_s = os.times().children_user - before.children_user

    # Two to three seconds.
    assert used_s < 15 * slowness()
