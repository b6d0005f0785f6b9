"""Pages: the files of a folder, as they are, below a path. What they show, they ask an API for."""

from functools import cache
from pathlib import Path
from typing import Final

from toolpost.contracts.errors import ErrorCode
from toolpost.endpoints.auth.access import Access
from toolpost.endpoints.http.refusal import Refused
from toolpost.endpoints.http.request import HttpRequest

_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing but these files runs, nothing else is asked, and no text is ever taken for HTML."""

_HEADERS: Final = [
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
]


class Pages:
    """The files of a folder below a path. Everybody who reaches this server may have them: they hold nothing of anybody."""

    def __init__(self, access: Access, path: str, folder: Path, title: str) -> None:
        """Take also what the page is called where a file of it is missing."""
        self._access = access
        self._path = path
        self._folder = folder
        self._title = title

    def serves(self, path: str) -> bool:
        """Whether a path is one of these."""
        return path == self._path or path.startswith(f"{self._path}/")

    async def answer(self, request: HttpRequest) -> None:
        """Send a file."""
        self._access.check_names(request.headers)
        if request.method not in ("GET", "HEAD"):
            raise Refused(
                405, ErrorCode.INVALID_REQUEST, "This path accepts only GET", headers=[(b"allow", b"GET, HEAD")]
            )
        found = _files(self._folder).get(request.path.removeprefix(self._path).strip("/") or "index.html")
        if found is None:
            raise Refused(404, ErrorCode.NOT_FOUND, f"There is nothing at this path; {self._title} is at {self._path}")
        kind, body = found
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *_HEADERS]
        await request.send({"type": "http.response.start", "status": 200, "headers": headers})
        await request.send({"type": "http.response.body", "body": body if request.method == "GET" else b""})


@cache
def _files(folder: Path) -> dict[str, tuple[bytes, bytes]]:
    """Read a folder once, when a file of it is first requested: only what is in it can be had."""
    return {file.name: (_TYPES[file.suffix], file.read_bytes()) for file in folder.iterdir() if file.suffix in _TYPES}
