"""Digests: the same JSON gives the same name, on any machine."""

import hashlib

import msgspec
import rfc8785

from toolpost.contracts.ids import Digest, Json

_sorted = msgspec.json.Encoder(order="sorted")


def canonical_digest(value: Json) -> Digest:
    """Name a contract for good: SHA-256 over its RFC 8785 form, which other languages can recompute."""
    return digest_of_bytes(rfc8785.dumps(value))


def quick_digest(value: Json) -> Digest:
    """Name the arguments of one call: keys sorted, compact JSON. A tenth of the cost of RFC 8785, which every call would pay."""
    return digest_of_bytes(_sorted.encode(value))


def digest_of_bytes(data: bytes) -> Digest:
    """Name these very bytes."""
    return Digest(f"sha256:{hashlib.sha256(data).hexdigest()}")
