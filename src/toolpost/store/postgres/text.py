"""Texts that PostgreSQL cannot hold, escaped so that it can. No I/O.

It has no NUL. A substitute character (U+001A) and a digit stand for it, and for the substitute character itself. Every
single text that passes through a connection of the store is escaped like this; arrays are escaped by the code that makes them.
"""

_SUBSTITUTE = "\x1a"


def escape(text: str) -> str:
    """Return the text without what the database cannot hold."""
    if "\0" not in text and _SUBSTITUTE not in text:
        return text
    return text.replace(_SUBSTITUTE, f"{_SUBSTITUTE}1").replace("\0", f"{_SUBSTITUTE}0")


def unescape(text: str) -> str:
    """Return the text that was escaped."""
    if _SUBSTITUTE not in text:
        return text
    return text.replace(f"{_SUBSTITUTE}0", "\0").replace(f"{_SUBSTITUTE}1", _SUBSTITUTE)
