"""Where the key that encrypts credentials is kept: in a file, an environment variable or the keychain.

Each place has a list of keys, the newest first: the first one encrypts, all of them decrypt, so that values stay readable while
the key is being rotated. A key is 32 random bytes in URL-safe base64, as `cryptography.fernet` makes them.
"""

import base64
import binascii
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from toolpost.base.state_folder import make_folder
from toolpost.contracts.errors import BadConfiguration
from toolpost.credentials.keychain import read_keychain, write_keychain

VARIABLE: Final = "TOOLPOST_CREDENTIALS_KEY"

_KEY_BYTES: Final = 32


def make_key() -> str:
    """Return a new random key."""
    return base64.urlsafe_b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


class KeyPlace(Protocol):
    """A place that keeps encryption keys. Its methods may block."""

    @property
    def shown(self) -> str:
        """The place, for people."""
        ...

    @property
    def is_writable(self) -> bool:
        """Whether Toolpost can put a new key there."""
        ...

    def read(self) -> list[str]:
        """Return the keys, the newest first; none if there are none. Raises `BadConfiguration` for what is not a key."""
        ...

    def create(self) -> list[str]:
        """Add the first key unless another process has just done so, and return those that are there."""
        ...

    def replace(self, keys: Sequence[str]) -> None: ...


class KeyFile:
    """A file with one key on each line, readable by its owner alone; created when the first credential is stored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shown = str(path)
        self.is_writable = True

    def read(self) -> list[str]:
        try:
            return _parse_keys(self.path.read_text(encoding="ascii"), self.shown)
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise BadConfiguration(
                f"The key of the credentials cannot be read from {self.shown}: {reason}.",
                hint="check the rights of the file, or set TOOLPOST_CREDENTIALS_KEY",
            ) from error

    def create(self) -> list[str]:
        make_folder(self.path.parent)
        written = self._write_beside([make_key()])
        try:
            # Linked, not renamed: of two processes that create it at the same time, one fails here and uses the other's key.
            os.link(written, self.path)
        except FileExistsError:
            pass
        finally:
            written.unlink()
        _sync_folder(self.path.parent)
        return self.read()

    def replace(self, keys: Sequence[str]) -> None:
        self._write_beside(keys).replace(self.path)
        _sync_folder(self.path.parent)

    def _write_beside(self, keys: Sequence[str]) -> Path:
        """Write a new file in the same folder, complete and synced: a crash leaves the old keys or the new ones."""
        temporary = self.path.with_name(f"{self.path.name}.{secrets.token_hex(6)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.writelines(f"{key}\n" for key in keys)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        return temporary


def _sync_folder(folder: Path) -> None:
    """Make a new name in a folder durable: what is encrypted with a key must not be on disk before the key is."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return  # Windows opens no folders.
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class KeyVariable:
    """An environment variable with one key, or several with spaces between them."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.shown = VARIABLE
        self.is_writable = False
        self._environment = environment

    def read(self) -> list[str]:
        return _parse_keys(self._environment.get(VARIABLE, ""), self.shown)

    def create(self) -> list[str]:
        raise BadConfiguration(f"{VARIABLE} is empty.", hint=f"set it to a key: {_HOW_TO_MAKE_ONE}")

    def replace(self, keys: Sequence[str]) -> None:  # noqa: ARG002 (the interface)
        raise BadConfiguration(
            f"The key is in {VARIABLE}, which Toolpost cannot change.",
            hint=f"put a new key and a space before the old one, and run this again; {_HOW_TO_MAKE_ONE}",
        )


class KeyInKeychain:
    """An entry of the keychain."""

    def __init__(self, service: str, name: str) -> None:
        self.shown = f"the keychain ({service}/{name})"
        self.is_writable = True
        self._service = service
        self._name = name

    def read(self) -> list[str]:
        return _parse_keys(read_keychain(self._service, self._name) or "", self.shown)

    def create(self) -> list[str]:
        self.replace([make_key()])
        return self.read()

    def replace(self, keys: Sequence[str]) -> None:
        write_keychain(self._service, self._name, " ".join(keys))


class KeyInMemory:
    """A key of this process alone, for a store in memory."""

    def __init__(self) -> None:
        self.shown = "memory"
        self.is_writable = True
        self._keys: list[str] = []

    def read(self) -> list[str]:
        return self._keys

    def create(self) -> list[str]:
        self._keys = [make_key()]
        return self._keys

    def replace(self, keys: Sequence[str]) -> None:
        self._keys = list(keys)


_HOW_TO_MAKE_ONE: Final = "`toolpost auth key --new` prints one"


def _parse_keys(text: str, place: str) -> list[str]:
    keys = text.split()
    for key in keys:
        try:
            is_key = len(base64.b64decode(key, altchars=b"-_", validate=True)) == _KEY_BYTES
        except (binascii.Error, ValueError):
            is_key = False
        if not is_key:
            # Without the text: it may be a key with one character missing.
            raise BadConfiguration(
                f"{place}: this is not a key for credentials, which is 32 bytes in URL-safe base64.",
                hint=_HOW_TO_MAKE_ONE,
            )
    return keys
