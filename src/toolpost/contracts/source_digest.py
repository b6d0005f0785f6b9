"""The digest of the source by which definitions are judged: a verdict that was remembered under another one is made again."""

import hashlib
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

from toolpost.base.ids import Digest
from toolpost.base.version import __version__
from toolpost.contracts.digest import digest_of_bytes


@cache
def rules_digest() -> Digest:
    """Digest the source of this package, and the versions of what it is run by; takes a few milliseconds, once.

    The source rather than a number, which could be forgotten.
    """
    versions = f"{__version__} {sys.version} {version('jsonschema-rs')}"
    files = sorted(Path(__file__).parent.rglob("*.py"))
    sources = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    return digest_of_bytes(f"{versions} {sources.hexdigest()}".encode())
