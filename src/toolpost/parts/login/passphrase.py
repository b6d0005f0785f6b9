"""Hashes of passphrases (scrypt), and limits on how often one may be tried."""

import base64
import hashlib
import hmac
import os
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
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
"""How many wrong passphrases a name may have from one source within this time, at one gateway."""

STRANGERS_WINDOW_S: Final = 3600.0
STRANGERS_TRIES: Final = 300
"""The same from all addresses together. One address alone makes 120 an hour: it cannot reach this limit for the others."""

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


@dataclass(frozen=True, eq=False, slots=True)
class Attempt:
    """A passphrase that was tried, from a browser that has logged in with this name before, or else from an address."""

    at: float
    source: str
    is_known: bool


class PassphraseCheck:
    """Compares passphrases in threads, a few at a time, and limits how often a name is tried.

    A limit for the name alone would let anyone keep its person out: ten wrong passphrases every five minutes suffice. So a
    browser that has logged in before is counted for itself, and what strangers do does not matter to it.
    """

    def __init__(self) -> None:
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._tries: dict[str, deque[Attempt]] = {}
        self._nobody = hash_passphrase(_encode(os.urandom(16)))

    def take_try(self, name: str, source: str, *, is_known: bool) -> Attempt | None:
        """Count a try for the name of a caller; None, and not counted, if there were too many wrong ones.

        Counted before the passphrase is compared, so that tries at the same time do not all pass; `give_back` after a right one.
        Only for names that exist: strangers must not fill the memory.
        """
        now, tries = time.monotonic(), self._tries.setdefault(name, deque())
        while tries and tries[0].at < now - STRANGERS_WINDOW_S:
            tries.popleft()
        if sum(each.source == source and each.at >= now - WINDOW_S for each in tries) >= TRIES:
            return None
        if not is_known and sum(not each.is_known for each in tries) >= STRANGERS_TRIES:
            return None
        tries.append(attempt := Attempt(now, source, is_known))
        return attempt

    def give_back(self, name: str, attempt: Attempt) -> None:
        """Take back what `take_try` counted: the passphrase was right."""
        with suppress(ValueError):  # more than an hour ago
            self._tries[name].remove(attempt)

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
