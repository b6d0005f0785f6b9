"""Hashes of passphrases (scrypt)."""

import base64
import hashlib
import hmac
import os
from typing import Final

LOG2_N: Final = 15
R: Final = 8
P: Final = 1
"""32 MiB and about 0.1 s for each try, as OWASP recommends at the least."""

_MEMORY: Final = 256 * 1024 * 1024


def hash_passphrase(passphrase: str) -> str:
    """Return `scrypt:LOG2_N:R:P:SALT:HASH`, with a random salt."""
    salt = os.urandom(16)
    return f"scrypt:{LOG2_N}:{R}:{P}:{_encode(salt)}:{_encode(_derive(passphrase, salt, LOG2_N, R, P))}"


def is_passphrase(passphrase: str, hashed: str) -> bool:
    """Whether this is the passphrase of a hash. Takes as long as a hash does."""
    _, log2_n, r, p, salt, digest = hashed.split(":")
    # What a file says may be more than this machine has.
    if int(log2_n) > 20 or int(r) > 32 or int(p) > 16:
        return False
    found = _derive(passphrase, _decode(salt), int(log2_n), int(r), int(p))
    return hmac.compare_digest(found, _decode(digest))


def _derive(passphrase: str, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(passphrase.encode(), salt=salt, n=2**log2_n, r=r, p=p, maxmem=_MEMORY, dklen=32)


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
