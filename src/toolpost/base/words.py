"""The words of a name, in any of the spellings that programs use: `apiKey`, `API_KEY`, `api-key`, `HTTPServer2`."""

import re
from typing import Final

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def split_words(name: str) -> list[str]:
    """Return the words of a name in lower case; letters beyond ASCII separate them."""
    return [word.lower() for word in _WORD.findall(name)]
