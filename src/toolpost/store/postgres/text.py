"""Escapes texts that PostgreSQL cannot store, which are those with NUL. No I/O.

NUL becomes a substitute character (U+001A) and `0`, the substitute character itself the same and `1`. Every text that is a
parameter or a column on a connection of the store is escaped like this; arrays are escaped by the code that makes them.
"""

_SUBSTITUTE = "\x1a"


def escape(text: str) -> str:
    if "\0" not in text and _SUBSTITUTE not in text:
        return text
    return text.replace(_SUBSTITUTE, f"{_SUBSTITUTE}1").replace("\0", f"{_SUBSTITUTE}0")


def unescape(text: str) -> str:
    if _SUBSTITUTE not in text:
        return text
    return text.replace(f"{_SUBSTITUTE}0", "\0").replace(f"{_SUBSTITUTE}1", _SUBSTITUTE)
