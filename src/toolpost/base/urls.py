"""URLs of strangers, parsed in linear time.

`urllib.parse` normalizes a host that is not ASCII, which takes quadratic time for combining marks: three seconds for 64,000. No
such URL is that long, so a long one is refused like any other that cannot be parsed.
"""

from typing import Final
from urllib.parse import SplitResult, urldefrag, urljoin, urlsplit

LIMIT: Final = 2_048
"""Characters of a URL that is not ASCII."""


def split_url(url: str) -> SplitResult:
    """Split a URL as `urlsplit` does; raises `ValueError`."""
    return urlsplit(_check(url))


def join_url(base: str, url: str) -> str:
    """Join a base and a URL as `urljoin` does; raises `ValueError`."""
    return urljoin(_check(base), _check(url))


def split_fragment(url: str) -> tuple[str, str]:
    """Split a URL and its fragment as `urldefrag` does; raises `ValueError`."""
    address, fragment = urldefrag(_check(url))
    return address, fragment


def _check(url: str) -> str:
    if len(url) > LIMIT and not url.isascii():
        raise ValueError(f"a URL has more than {LIMIT} characters, and is not ASCII")
    return url
