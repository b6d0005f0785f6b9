"""Hashes of passphrases (scrypt), and limits on how often one may be tried."""

import base64
import hashlib
import hmac
import os
import time
from collections import deque
from typing import Final

import anyio
import anyio.to_thread

LOG2_N: Final = 15
R: Final = 8
P: Final = 1
"""32 MiB and about 0.1 s for each try, as OWASP recommends at the least."""

LENGTH_LIMIT: Final = 1024
"""A passphrase of more bytes is wrong without a look."""

WINDOW_S: Final = 300.0
TRIES: Final = 10
"""How many wrong passphrases a name may have within this time, at one gateway."""

_THREADS: Final = 2
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


class PassphraseCheck:
    """Compares passphrases in threads, a few at a time, and refuses names that were tried too often."""

    def __init__(self) -> None:
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._tries: dict[str, deque[float]] = {}
        self._nobody = hash_passphrase(_encode(os.urandom(16)))

    def take_try(self, name: str) -> bool:
        """Count a try for the name of a caller; False, and not counted, if there were too many wrong ones.

        Counted before the passphrase is compared, so that tries at the same time do not all pass; `give_back` after a right one.
        Only for names that exist: strangers must not fill the memory.
        """
        tries = self._tries.setdefault(name, deque())
        while tries and tries[0] < time.monotonic() - WINDOW_S:
            tries.popleft()
        if len(tries) >= TRIES:
            return False
        tries.append(time.monotonic())
        return True

    def give_back(self, name: str) -> None:
        """Take back what `take_try` counted: the passphrase was right."""
        if tries := self._tries.get(name):
            tries.pop()

    async def check(self, passphrase: str, hashed: str | None) -> bool:
        """Whether the passphrase is right. Takes as long for a name that does not exist (`hashed` is None)."""
        is_right = len(passphrase.encode()) <= LENGTH_LIMIT and await anyio.to_thread.run_sync(
            is_passphrase, passphrase, hashed or self._nobody, limiter=self._threads
        )
        return is_right and hashed is not None


def _derive(passphrase: str, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(passphrase.encode(), salt=salt, n=2**log2_n, r=r, p=p, maxmem=_MEMORY, dklen=32)


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
