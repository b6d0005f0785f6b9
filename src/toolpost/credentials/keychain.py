"""The keychain of the operating system, through the optional package `keyring`. Reading one may ask the user, and block."""

from typing import TYPE_CHECKING

from toolpost.contracts.errors import BadConfiguration, CapabilityMissing

if TYPE_CHECKING:
    import types


def read_keychain(service: str, name: str) -> str | None:
    """Return an entry, None if there is none.

    Raises `CapabilityMissing` without `keyring`, `BadConfiguration` if there is no keychain or it is locked.
    """
    keyring = _load_keyring()
    try:
        found: str | None = keyring.get_password(service, name)
    except keyring.errors.KeyringError as error:
        raise _make_error(error) from error
    return found


def write_keychain(service: str, name: str, value: str) -> None:
    """Add or replace an entry; raises as `read_keychain` does."""
    keyring = _load_keyring()
    try:
        keyring.set_password(service, name, value)
    except keyring.errors.KeyringError as error:
        raise _make_error(error) from error


def _load_keyring() -> "types.ModuleType":
    try:
        import keyring
        import keyring.errors
    except ModuleNotFoundError as error:
        raise CapabilityMissing(
            "The keychain needs the package keyring, which is not installed.", hint="pip install 'toolpost[keychain]'"
        ) from error
    return keyring


def _make_error(error: Exception) -> BadConfiguration:
    return BadConfiguration(
        f"The keychain cannot be used: {error}.",
        hint="unlock it, or choose a backend of keyring (PYTHON_KEYRING_BACKEND); a file or a variable works everywhere",
    )
