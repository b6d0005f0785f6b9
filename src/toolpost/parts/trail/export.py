"""Exports: the sessions and proofs of a trail as lines of JSON, for `verify_trail.py`, which is put beside them."""

import json
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from toolpost.base import JsonObject
from toolpost.parts.trail.records import TrailSession
from toolpost.parts.trail.service import Trail

VERIFIER: Final = "verify_trail.py"


async def export_session(trail: Trail, session: TrailSession, *, with_content: bool) -> AsyncIterator[JsonObject]:
    """Yield the lines of a session: its header, its records, and its seal if it has one. Contents only on request."""
    header: JsonObject = {"line": "session", "header": session.header_json, "hash": session.start}
    if with_content:
        header |= {"intent": session.intent.decode(), "salt": session.salt}
    yield header
    async for chunk in trail.read(session):
        for record in chunk:
            line: JsonObject = {"line": "record", "body": record.body_json, "hash": record.hash}
            if with_content and record.content is not None:
                line |= {"content": record.content.decode(), "salt": record.salt}
            yield line
    if session.seal is not None:
        yield {"line": "seal", **_seal_of(session)}


async def export_proof(trail: Trail, session: TrailSession, proof: JsonObject) -> JsonObject:
    """Return the line of a proof: with its record, without the content, and the session's seal where it is of the same tree."""
    line: JsonObject = {"line": "proof", **proof}
    if proof["kind"] == "inclusion":
        line["record"] = (await trail.read_record(session, proof["seq"])).body_json
    if session.seal is not None and proof["size"] == session.size:
        line |= _seal_of(session)
    return line


def encode_line(line: JsonObject) -> str:
    """Return a line of an export."""
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def write_verifier(folder: Path) -> Path:
    """Put the verifier into a folder; return its path."""
    path = folder / VERIFIER
    path.write_text(files("toolpost.parts.trail").joinpath(VERIFIER).read_text(encoding="utf-8"), encoding="utf-8")
    return path


def _seal_of(session: TrailSession) -> JsonObject:
    return {"seal": session.seal_json, "signature": session.signature, "public_key": session.public_key}
