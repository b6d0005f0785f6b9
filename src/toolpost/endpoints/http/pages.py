"""Static pages: the files of a folder, served below a path. Their data comes from an API."""

from collections.abc import Collection
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
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'%b; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""No other script runs, no other host is contacted, and no text is ever interpreted as HTML."""

_MEDIA: Final = b" data:; media-src data:"

_HEADERS: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
]


class Pages:
    """The files of a folder below a path. They need no token: they contain no data of callers."""

    def __init__(
        self,
        access: Access,
        path: str,
        folder: Path,
        title: str,
        *,
        views: Collection[str] = (),
        shows_media: bool = False,
    ) -> None:
        """`title` names the page in the error for a missing file.

        `views` are further paths that are answered with `index.html`, whose script shows what belongs there: `/calls` stands for
        itself, `/calls/` for all paths below it. With views, a browser that opens a path without a file gets `index.html` with
        status 404. `shows_media` lets the page show images and sounds that it has as data.
        """
        if not folder.is_dir():
            raise NotADirectoryError(f"the folder of the page {path} does not exist: {folder}")
        self._access = access
        self._path = path
        self._folder = folder
        self._title = title
        self._views = frozenset(view for view in views if view == "/" or not view.endswith("/"))
        self._view_folders = tuple(view for view in views if view != "/" and view.endswith("/"))
        policy = _POLICY % (_MEDIA if shows_media else b"")
        self._headers = [(b"content-security-policy", policy), *_HEADERS]

    def serves(self, path: str) -> bool:
        return path == self._path or path.startswith(f"{self._path}/") or self._is_view(path)

    def _is_view(self, path: str) -> bool:
        return path in self._views or path.startswith(self._view_folders)

    async def answer(self, request: HttpRequest) -> None:
        self._access.check_host_and_origin(request.headers)
        if request.method not in ("GET", "HEAD"):
            raise Refused(
                405, ErrorCode.INVALID_REQUEST, "This path takes GET only", headers=[(b"allow", b"GET, HEAD")]
            )
        below = "" if self._is_view(request.path) else request.path.removeprefix(self._path).strip("/")
        files, status = _files(self._folder), 200
        found = files.get(below or "index.html")
        if found is None and self._views and b"text/html" in request.headers.get(b"accept", b""):
            # A person mistyped an address, or followed an old link: the page says what there is.
            found, status = files.get("index.html"), 404
        if found is None:
            raise Refused(404, ErrorCode.NOT_FOUND, f"There is nothing at this path; {self._title} is at {self._path}")
        kind, body = found
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *self._headers]
        await request.send({"type": "http.response.start", "status": status, "headers": headers})
        await request.send({"type": "http.response.body", "body": body if request.method == "GET" else b""})


@cache
def _files(folder: Path) -> dict[str, tuple[bytes, bytes]]:
    """Read a folder once, when a file of it is first requested: only what is in it can be had."""
    return {
        file.relative_to(folder).as_posix(): (_TYPES[file.suffix], file.read_bytes())
        for file in folder.rglob("*")
        if file.suffix in _TYPES
    }
