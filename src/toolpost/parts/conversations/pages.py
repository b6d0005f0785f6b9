"""The chat page: a few files of this package, as they are. What it shows, it asks the API of conversations for."""

from functools import cache
from pathlib import Path
from typing import Final

from toolpost.contracts.errors import ErrorCode
from toolpost.endpoints.auth.access import Access
from toolpost.endpoints.http.refusal import Refused
from toolpost.endpoints.http.request import HttpRequest

CHAT_PATH: Final = "/chat"

_FOLDER: Final = Path(__file__).parent / "chat_page"
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
    """The paths of the chat page. Whoever reaches this server may have it: it holds nothing of anybody."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def serves(self, path: str) -> bool:
        """Whether a path is one of these."""
        return path == CHAT_PATH or path.startswith(f"{CHAT_PATH}/")

    async def answer(self, request: HttpRequest) -> None:
        """Send a file."""
        self._access.check_names(request.headers)
        if request.method not in ("GET", "HEAD"):
            raise Refused(
                405, ErrorCode.INVALID_REQUEST, "This path takes GET alone", headers=[(b"allow", b"GET, HEAD")]
            )
        found = _files().get(request.path.removeprefix(CHAT_PATH).strip("/") or "index.html")
        if found is None:
            raise Refused(404, ErrorCode.NOT_FOUND, f"There is nothing at this path; the chat is at {CHAT_PATH}")
        kind, body = found
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *_HEADERS]
        await request.send({"type": "http.response.start", "status": 200, "headers": headers})
        await request.send({"type": "http.response.body", "body": body if request.method == "GET" else b""})


@cache
def _files() -> dict[str, tuple[bytes, bytes]]:
    """Read them once, when somebody first wants one: only what is here can be asked for."""
    return {file.name: (_TYPES[file.suffix], file.read_bytes()) for file in _FOLDER.iterdir() if file.suffix in _TYPES}
