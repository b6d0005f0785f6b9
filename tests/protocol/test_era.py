"""Our reading of the stateless era agrees with the official SDK's, rule by rule."""

import itertools
from typing import Any

import pytest
from mcp.shared.inbound import (
    InboundLadderRejection,
    classify_inbound_request,
    decode_header_value,
    encode_header_value,
)
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS

from toolpost.protocol import era
from toolpost.protocol.rpc import ProtocolError

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"

METAS: list[dict[str, Any]] = [
    {VERSION: "2026-07-28", CAPABILITIES: {}},
    {VERSION: "2026-07-28"},
    {CAPABILITIES: {}},
    {},
    {VERSION: "2031-01-01", CAPABILITIES: {}},
    {VERSION: "2025-11-25", CAPABILITIES: {}},
    {VERSION: 7, CAPABILITIES: {}},
    {VERSION: None, CAPABILITIES: {}},
]
HEADERS: list[dict[str, str]] = [
    {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "a__b"},
    {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": encode_header_value("ä__b")},
    {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "=?base64?!!?="},
    {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"},
    {"mcp-protocol-version": "2026-07-28", "mcp-name": "a__b"},
    {"mcp-protocol-version": "2025-11-25", "mcp-method": "tools/call", "mcp-name": "a__b"},
    {"mcp-method": "tools/call", "mcp-name": "a__b"},
    {},
]


def judged_by_sdk(meta: dict[str, Any], headers: dict[str, str] | None, name: str) -> int | None:
    body = {"method": "tools/call", "params": {"name": name, "_meta": meta}}
    verdict = classify_inbound_request(body, headers=headers)
    return verdict.code if isinstance(verdict, InboundLadderRejection) else None


def judged_by_us(meta: dict[str, Any], headers: dict[str, str] | None, name: str) -> int | None:
    try:
        era.check_envelope_keys(meta, request_id=b"1")
        if headers is not None:
            raw = {key.encode(): value.encode("latin-1") for key, value in headers.items()}
            era.check_stateless_headers(raw, meta=meta, method="tools/call", name=name, request_id=b"1")
        era.check_stateless_envelope(meta, request_id=b"1")
    except ProtocolError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    ("meta", "headers", "name"), list(itertools.product(METAS, [None, *HEADERS], ["a__b", "ä__b"])), ids=str
)
def test_we_refuse_what_the_sdk_refuses(meta: dict[str, Any], headers: dict[str, str] | None, name: str) -> None:
    assert judged_by_us(meta, headers, name) == judged_by_sdk(meta, headers, name)


@pytest.mark.parametrize(
    "value", ["a__b", "ä", "", "=?base64?w6Q=?=", "=?base64?w6R=?=", "=?base64?gA==?=", "x=?base64?w6Q=?="]
)
def test_header_values_are_read_as_the_sdk_reads_them(value: str) -> None:
    assert era.decode_header(value.encode("latin-1")) == decode_header_value(value)


def test_we_know_the_revisions_that_the_sdk_knows() -> None:
    assert set(era.HANDSHAKE_VERSIONS) == set(HANDSHAKE_PROTOCOL_VERSIONS)
    assert [era.STATELESS.version] == list(MODERN_PROTOCOL_VERSIONS)
    assert era.LATEST_HANDSHAKE == LATEST_HANDSHAKE_VERSION
    assert era.SERVER_INFO == SERVER_INFO_META_KEY
