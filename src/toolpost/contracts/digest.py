"""SHA-256 digests of JSON: the same JSON has the same digest on every machine."""

import hashlib

import msgspec
import rfc8785

from toolpost.base.ids import Digest, Json

encode_sorted = msgspec.json.Encoder(order="sorted").encode
"""Encodes compact JSON with sorted keys, which `quick_digest` digests."""


def canonical_digest(value: Json) -> Digest:
    """Digest the RFC 8785 form, which other languages can recompute; used for what is stored, such as contracts."""
    try:
        return digest_of_bytes(rfc8785.dumps(value))
    except rfc8785.IntegerDomainError:
        return digest_of_bytes(rfc8785.dumps(_as_doubles(value)))


def _as_doubles(value: Json) -> Json:
    """Return the value with its huge integers as JavaScript reads them, which is what RFC 8785 writes."""
    match value:
        case dict():
            return {key: _as_doubles(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_as_doubles(inner) for inner in value]
        case int() if abs(value) >= 2**53:
            return float(value) if abs(value) < 10**308 else str(value)
    return value


def quick_digest(value: Json) -> Digest:
    """Digest compact JSON with sorted keys, at a tenth of the cost of RFC 8785; used for arguments and listings."""
    return digest_of_bytes(encode_sorted(value))


def digest_of_bytes(data: bytes) -> Digest:
    """Return the SHA-256 digest of bytes as `sha256:` and 64 hexadecimal digits."""
    return Digest(f"sha256:{hashlib.sha256(data).hexdigest()}")
