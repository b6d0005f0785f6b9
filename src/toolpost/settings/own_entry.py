"""Recognizes Toolpost itself among a client's servers: behind itself it would start itself endlessly."""

import itertools
from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final
from urllib.parse import urlsplit

from toolpost.base.ids import Json

OWN_NAME: Final = "toolpost"
_OWN_PORT: Final = 8420
_HERE: Final = ("127.0.0.1", "localhost", "::1")


def is_toolpost(name: str, entry: Json) -> bool:
    """Whether an entry of a client's file is a Toolpost on this machine."""
    if not isinstance(entry, dict):
        return False
    args, url = entry.get("args"), entry.get("url")
    words = [entry.get("command"), *(args if isinstance(args, list) else [])]
    if _starts_toolpost([word for word in words if isinstance(word, str)]):
        return True
    return isinstance(url, str) and _is_own_url(url, is_named=name == OWN_NAME)


def _starts_toolpost(words: Sequence[str]) -> bool:
    """Whether a command contains `toolpost serve`, by path or through `uvx` and similar runners."""
    return any(_is_own_program(word) and after == "serve" for word, after in itertools.pairwise(words))


def _is_own_program(word: str) -> bool:
    name = PureWindowsPath(PurePosixPath(word).name).name.lower().removesuffix(".exe")
    # Also `toolpost==1.2`, `toolpost@latest` and `toolpost[postgres]`.
    return name.split("@")[0].split("=")[0].split("[")[0] == OWN_NAME


def _is_own_url(url: str, *, is_named: bool) -> bool:
    try:
        parts = urlsplit(url)
        is_ours = is_named or parts.port == _OWN_PORT
    except ValueError:
        return False
    return is_ours and parts.hostname in _HERE and parts.path == "/mcp"
