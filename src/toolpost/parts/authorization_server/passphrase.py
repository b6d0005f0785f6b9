"""Limits on how often a passphrase may be tried, and by whom."""

import secrets
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.to_thread

from toolpost.base import hash_passphrase, is_passphrase

LENGTH_LIMIT: Final = 1024
"""A passphrase of more bytes is wrong without a look."""

WINDOW_S: Final = 300.0
TRIES: Final = 10
"""How many wrong passphrases a name may have from one source within this time, at one gateway."""

STRANGERS_WINDOW_S: Final = 3600.0
STRANGERS_TRIES: Final = 300
"""The same from all addresses together. One address alone makes 120 an hour: it cannot reach this limit for the others."""

STRANGERS_AT_ONCE: Final = 2
KNOWN_AT_ONCE: Final = 1
"""A thread that browsers which have logged in before have for themselves."""

WAITING: Final = 16
"""How many tries wait for a thread, of strangers and of known browsers each: the last of them for about a second."""

RETRY_S: Final = 2


@dataclass(frozen=True, eq=False, slots=True)
class PassphraseAttempt:
    """A passphrase that was tried, from a browser that has logged in with this name before, or else from an address."""

    at: float
    source: str
    is_known: bool


class TooManyTries(Exception):
    """So many passphrases are being compared that another one would wait for long."""


class PassphraseCheck:
    """Compares passphrases in threads, a few at a time, and limits how often a name is tried.

    A limit for the name alone would let anyone keep its person out: ten wrong passphrases every five minutes suffice. So a
    browser that has logged in before is counted for itself, and has a thread that strangers cannot occupy.
    """

    def __init__(self) -> None:
        self._threads = {
            False: anyio.CapacityLimiter(STRANGERS_AT_ONCE),
            True: anyio.CapacityLimiter(KNOWN_AT_ONCE),
        }
        self._tries: dict[str, deque[PassphraseAttempt]] = {}
        self._nobody = hash_passphrase(secrets.token_urlsafe(16))

    def take_try(self, name: str, source: str, *, is_known: bool) -> PassphraseAttempt | None:
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
        tries.append(attempt := PassphraseAttempt(now, source, is_known))
        return attempt

    def give_back(self, name: str, attempt: PassphraseAttempt) -> None:
        """Take back what `take_try` counted: the passphrase was right."""
        with suppress(ValueError):  # more than an hour ago
            self._tries[name].remove(attempt)

    async def check(self, passphrase: str, hashed: str | None, *, is_known: bool) -> bool:
        """Whether the passphrase is right. Takes as long for a name that does not exist (`hashed` is None).

        Raises `TooManyTries`, for a name that does not exist as well.
        """
        threads = self._threads[is_known]
        if threads.statistics().tasks_waiting >= WAITING:
            raise TooManyTries
        is_right = len(passphrase.encode()) <= LENGTH_LIMIT and await anyio.to_thread.run_sync(
            is_passphrase, passphrase, hashed or self._nobody, limiter=threads
        )
        return is_right and hashed is not None
