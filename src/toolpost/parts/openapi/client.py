"""Sends requests to one origin: that of `base`. Answers that lead elsewhere are not followed.

Connections, proxy, certificates and limits are those of `HttpClient`, which keeps no cookies: a session that the API begins for
one caller must not be another caller's. Time limits are the call's; cancelling closes the connection.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from anyio import to_thread

from toolpost import Context, UpstreamUnavailable
from toolpost.base import conceal_known, join_url, split_url
from toolpost.credentials import CallerCredentials
from toolpost.net import HttpClient, HttpFailed, Response
from toolpost.parts.openapi.credentials import Filled, KeyPlaces
from toolpost.parts.openapi.operations import Operation, origin_of
from toolpost.parts.openapi.serialize import ApiRequest, has_dots
from toolpost.upstreams import ServerSpec

REDIRECTS_LIMIT: Final = 5
_ACCEPT: Final = "application/json, */*;q=0.5"


@dataclass(frozen=True, kw_only=True)
class ApiResponse:
    """An answer of any status, decompressed."""

    status: int
    headers: dict[str, str]
    body: bytes
    url: str
    """Where it came from, after redirects; without credentials."""

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class ApiClient:
    """Sends the requests of one API. Close it with `aclose`."""

    def __init__(
        self, spec: ServerSpec, places: KeyPlaces, credentials: CallerCredentials, *, limit_bytes: int, timeout_s: float
    ) -> None:
        assert spec.url is not None
        self._base = spec.url.rstrip("/")
        self._spec = spec
        self._places = places
        self._credentials = credentials
        self._limit_bytes = limit_bytes
        self._timeout_s = timeout_s
        self._client: HttpClient | None = None

    async def aclose(self) -> None:
        """Close its connections."""
        if self._client is not None:
            await self._client.aclose()

    async def send(self, operation: Operation, request: ApiRequest, context: Context) -> ApiResponse:
        """Send a request with the credentials of a call's caller; raises `UpstreamUnavailable` if there is no answer.

        Raises `CredentialRequired` or `LoginRequired` where the caller has to set a value, or to log in, first.
        """
        names = self._places.find_needed(operation)
        filled = self._places.fill(await self._credentials.fill(self._spec, context.caller, names=names), names)
        is_public = operation.security is not None and not operation.security
        if self._spec.auth is None or is_public:
            return await self._follow(request, filled, None)
        # It ends before the call's own deadline does: an error that says what to do is better than a timeout.
        limit_s = 0.95 * self._timeout_s
        send = partial(self._follow, request, filled)
        return await self._credentials.send(self._spec, context.caller, send, context.client_channel, limit_s=limit_s)

    async def _follow(self, request: ApiRequest, filled: Filled, token: str | None) -> ApiResponse:
        headers = merge_headers(request, filled, token)
        query = "&".join(f"{name}={value}" for name, value in (*request.query, *filled.query))
        url = f"{self._base}{request.path}"
        shown = url + ("?" + "&".join(f"{name}={value}" for name, value in request.query) if request.query else "")
        target = _target_of(url) + (f"?{query}" if query else "")
        mask = self._credentials.make_mask(filled.secrets, token)
        for _ in range(REDIRECTS_LIMIT + 1):
            response = await self._exchange(request.method, target, headers, request.body, mask)
            location = response.headers.get("location")
            if response.status not in (301, 302, 303, 307, 308) or not location:
                return replace(response, url=shown)
            try:
                shown = join_url(shown, location).partition("#")[0]
            except ValueError:
                shown = ""  # which is no place below `base`
            path = split_url(shown).path
            is_below = path.startswith(urlsplit(self._base).path.rstrip("/") + "/") and not has_dots(path)
            if origin_of(shown) != origin_of(self._base) or not is_below:
                raise UpstreamUnavailable(
                    "The API redirects to another origin, or out of `base`, which is not followed.",
                    hint="if the API has moved, an operator can change `base`",
                    status=response.status,
                    location=conceal_known(shown)[:500],
                )
            if request.method not in ("GET", "HEAD"):
                # What it changes may have been changed already, and a POST would become a GET.
                raise UpstreamUnavailable(
                    f"The API redirects a {request.method}, which is not repeated.",
                    hint="an operator can check `base`: a redirect from http to https, or a missing slash, are common",
                    status=response.status,
                    location=conceal_known(shown)[:500],
                )
            target = _target_of(shown)
        raise UpstreamUnavailable(f"The API redirected more than {REDIRECTS_LIMIT} times.")

    async def _exchange(
        self, method: str, target: str, headers: list[tuple[bytes, bytes]], body: bytes, mask: Callable[[bytes], bytes]
    ) -> "ApiResponse":
        events: list[bytes] = []
        try:
            response = await self._open().request(
                method, body, headers, target=target, on_event=_collect(events, self._limit_bytes)
            )
        except HttpFailed as failure:
            error = UpstreamUnavailable(f"The API gave no answer: {failure.reason}", hint=failure.hint)
            error.was_sent = failure.sent
            raise error from failure
        plain = {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers.items()}
        # `location` is followed as it came; what is shown of it is masked where it is shown.
        plain |= {name: mask(value.encode()).decode() for name, value in plain.items() if name != "location"}
        if events:
            data = b"\n".join(events)
        elif response.headers.get(b"content-encoding", b"identity") == b"identity":
            data = response.body
        else:
            # A few bytes may become `limit_bytes`.
            data = await to_thread.run_sync(_decompress, response, self._limit_bytes)
        return ApiResponse(status=response.status, headers=plain, body=mask(data), url="")

    def _open(self) -> HttpClient:
        if self._client is None:
            # Loading the certificates takes some milliseconds, so that it is done for the first call and not at the start.
            self._client = HttpClient(
                self._base,
                headers={"accept": _ACCEPT, "user-agent": "toolpost"},
                body_limit=self._limit_bytes,
                network=self._spec.network,
                is_compressed=True,
            )
        return self._client


def merge_headers(request: ApiRequest, filled: Filled, token: str | None) -> list[tuple[bytes, bytes]]:
    """Return all headers. What is configured replaces what an argument gives, never the other way round."""
    merged: dict[str, tuple[str, str]] = {name.lower(): (name, value) for name, value in request.headers}
    if request.media_type is not None:
        merged["content-type"] = ("content-type", request.media_type)
    if cookies := [*request.cookies, *filled.cookies]:
        merged["cookie"] = ("cookie", "; ".join(f"{name}={value}" for name, value in cookies))
    merged |= {name.lower(): (name, value) for name, value in filled.headers}
    if token is not None:
        merged["authorization"] = ("authorization", token)
    for own in ("accept", "user-agent", "accept-encoding"):
        # Sent by the client itself.
        merged.pop(own, None)
    return [(name.encode("latin-1"), _encode_header(value)) for name, value in merged.values()]


def _encode_header(value: str) -> bytes:
    try:
        return value.strip().encode("latin-1")
    except UnicodeEncodeError:
        return value.strip().encode("utf-8", "replace")


def _target_of(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _collect(events: list[bytes], limit: int) -> Callable[[bytes], bool]:
    """Make what takes the events of a stream, until they are too many."""
    size = 0

    def take(data: bytes) -> bool:
        nonlocal size
        size += len(data)
        if size <= limit:
            events.append(data)
        return size > limit

    return take


def _decompress(response: Response, limit: int) -> bytes:
    encoding = response.headers.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()
    if encoding in ("", "identity") or not response.body:
        return response.body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise UpstreamUnavailable(f"The API answered in the encoding {encoding[:40]}, which was not asked for.")
    # 47: gzip or zlib, by the first bytes; some servers mean neither by `deflate`.
    for window in (47, -15):
        inflate = zlib.decompressobj(window)
        try:
            data = inflate.decompress(response.body, limit + 1)
        except zlib.error:
            continue
        if len(data) > limit:
            raise UpstreamUnavailable(f"The API gave no answer: its body has more than {limit} bytes")
        return data
    raise UpstreamUnavailable("The API answered with a body that cannot be decompressed.")
