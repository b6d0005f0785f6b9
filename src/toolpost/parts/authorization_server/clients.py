"""Clients: those that registered themselves, and those whose client id is the URL of a document about them (CIMD).

A document is fetched from where its client id says, which a stranger chose. So it is fetched as far inside the network as this
gateway itself is, and no further (`credentials/fetch.py`); it is small, and remembered for a while.
"""

import re
import time
from collections import OrderedDict
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx2
import msgspec
from mcp.shared.auth import InvalidRedirectUriError, OAuthClientInformationFull
from pydantic import AnyUrl, ValidationError

from toolpost import UpstreamUnavailable
from toolpost.base import JsonObject, split_url
from toolpost.credentials import Fetcher
from toolpost.net import Network
from toolpost.parts.authorization_server import records
from toolpost.parts.authorization_server.scopes import SCOPES, select_scopes
from toolpost.store import Store

DOCUMENT_LIMIT: Final = 64 * 1024
FRESH_S: Final = 300.0
MISSING_S: Final = 10.0
CACHED: Final = 256
FETCH_S: Final = 5.0
_FETCHES: Final = 16
"""Hosts of which a document is fetched at a time; beyond that, and for the second of one host, there is none for now."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")
_NO_SCHEMES: Final = frozenset(
    {
        "about",
        "blob",
        "chrome",
        "data",
        "file",
        "filesystem",
        "ftp",
        "javascript",
        "mailto",
        "resource",
        "tel",
    }
    | {"intent", "jar", "search", "search-ms", "smb", "ssh", "vbscript", "view-source", "ws", "wss"}
)
"""Schemes that run code, or that lead somewhere else than to an application."""


class LoginClient(OAuthClientInformationFull):
    """A client, as the SDK's handlers use it."""

    secret_hash: str | None = None
    is_document: bool = False
    """Whether its id is the URL of its document, whose host stands for it."""

    def may_follow(self, uri: str) -> bool:
        """Whether a browser may be sent to a redirect URI of this client although no person has agreed to anything.

        Not to any that is registered: clients register themselves, and a link to this gateway must not lead just anywhere. On
        this machine there are applications of the person, and the origin of a client's document is in the link already.
        """
        parts = urlsplit(uri)
        if parts.scheme == "http" and parts.hostname in _LOOPBACK:
            return True
        own = urlsplit(self.client_id)
        return self.is_document and (parts.scheme, parts.netloc.lower()) == (own.scheme, own.netloc.lower())

    def validate_scope(self, requested_scope: str | None) -> list[str] | None:
        """Return the scopes that are known of those that were asked for; refuse none."""
        return select_scopes(requested_scope)

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        """Return where to redirect to: a URI that is registered, of which a port of this machine may differ (RFC 8252, 7.3)."""
        if redirect_uri is None:
            return super().validate_redirect_uri(None)
        if str(redirect_uri) in map(str, self.redirect_uris or []):
            return redirect_uri
        if redirect_uri.scheme == "http" and redirect_uri.host in _LOOPBACK:
            without_port = _drop_port(str(redirect_uri))
            if without_port in [_drop_port(str(uri)) for uri in self.redirect_uris or []]:
                return redirect_uri
        raise InvalidRedirectUriError("The redirect_uri is not registered for this client")


def find_redirect_problem(uri: AnyUrl) -> str | None:
    """Return why codes must not be sent to a URI; None if they may."""
    parts = urlsplit(str(uri))
    if parts.fragment or parts.username or parts.password:
        return "a redirect URI has neither a fragment nor a password"
    if uri.scheme == "https" and uri.host:
        return None
    if uri.scheme == "http":
        return None if uri.host in _LOOPBACK else "a redirect URI with http leads to this machine only: use https"
    if not _SCHEME.fullmatch(uri.scheme) or uri.scheme in _NO_SCHEMES or uri.scheme.startswith("ms-"):
        return "a redirect URI is https, http on this machine, or has the scheme of an application"
    return None


class Clients:
    """The clients that may ask people to log in."""

    def __init__(self, store: Store, *, url: str, takes_documents: bool, network: Network) -> None:
        self._store = store
        self._takes_documents = takes_documents
        self._is_local = urlsplit(url).hostname in _LOOPBACK
        # How the gateway's own name resolves, which may be to an address inside, must not open the network to documents.
        self._fetcher = Fetcher([url] if self._is_local else [], network)
        self._fetching: dict[str, tuple[str, anyio.Event]] = {}
        """By host: the document that is fetched from it now, and what is set once it is there or not."""
        self._documents: OrderedDict[str, tuple[float, LoginClient]] = OrderedDict()
        self._missing: OrderedDict[str, float] = OrderedDict()
        """Until when a document is not tried again. By itself: strangers must not displace documents with made-up URLs."""

    async def find(self, client: str) -> LoginClient | None:
        """Return a client; None if there is none, or its document cannot be used."""
        if client.startswith(("https://", "http://")):
            return await self._find_document(client) if self._takes_documents else None
        found = await self._store.scripts.read(lambda: records.find_client(client))
        if found is None:
            return None
        metadata, secret_hash = found
        known = LoginClient.model_validate_json(metadata)
        # The SDK's authenticator is replaced by one that compares hashes; it gets no secret.
        return known.model_copy(update={"secret_hash": secret_hash})

    async def register(self, client: OAuthClientInformationFull) -> None:
        """Keep a client that has registered itself, with the hash of its secret."""
        kept = client.model_copy(update={"client_secret": None, "scope": " ".join(SCOPES)})
        secret_hash = records.hash_of(client.client_secret) if client.client_secret else None
        metadata = kept.model_dump_json(exclude_none=True)
        await self._store.scripts.run(lambda: records.insert_client(client.client_id, metadata, secret_hash))

    async def _find_document(self, url: str) -> LoginClient | None:
        expires_at, known = self._documents.get(url, (0.0, None))
        if max(expires_at, self._missing.get(url, 0.0)) > time.monotonic():
            return known
        if not _is_document_url(url, is_local=self._is_local):
            return None
        host = urlsplit(url).netloc.lower()
        if host in self._fetching or len(self._fetching) >= _FETCHES:
            # A host that is slow must not keep the documents of others waiting, nor requests for its own pile up.
            fetched, done = self._fetching.get(host, ("", None))
            if fetched != url or done is None:
                return known
            await done.wait()
            return self._documents.get(url, (0.0, None))[1]
        done = anyio.Event()
        self._fetching[host] = url, done
        try:
            with anyio.fail_after(FETCH_S):
                request = httpx2.Request("GET", url, headers={"accept": "application/json"})
                response = await self._fetcher.send(request)
            if response.status_code != 200 or len(response.content) > DOCUMENT_LIMIT:
                raise ValueError("there is no document of a client")
            known = self._parse(url, msgspec.json.decode(response.content, type=dict))
            _remember(self._documents, url, (time.monotonic() + FRESH_S, known))
        except (UpstreamUnavailable, TimeoutError):
            # A document that was read before still counts while its host does not answer.
            _remember(self._missing, url, time.monotonic() + MISSING_S)
        except (ValueError, ValidationError, msgspec.DecodeError):
            known = None
            self._documents.pop(url, None)
            _remember(self._missing, url, time.monotonic() + MISSING_S)
        finally:
            del self._fetching[host]
            done.set()
        return known

    def _parse(self, url: str, document: JsonObject) -> LoginClient:
        # As exact text: otherwise a document could be used in the name of another.
        if document.get("client_id") != url:
            raise ValueError("the document is about another client")
        if document.get("token_endpoint_auth_method", "none") != "none" or "client_secret" in document:
            raise ValueError("a client with a document authenticates with PKCE alone")
        client = LoginClient.model_validate(
            {
                **{key: document.get(key) for key in ("client_id", "client_name", "redirect_uris")},
                "token_endpoint_auth_method": "none",
                "scope": " ".join(SCOPES),
                "is_document": True,
            }
        )
        if not client.redirect_uris or any(map(find_redirect_problem, client.redirect_uris)):
            raise ValueError("a redirect URI of the document cannot be used")
        return client


def _remember(cache: OrderedDict[str, Any], url: str, value: Any) -> None:
    cache[url] = value
    cache.move_to_end(url)
    while len(cache) > CACHED:
        cache.popitem(last=False)


def _is_document_url(url: str, *, is_local: bool) -> bool:
    """Whether a client id may be the URL of a document: https with a path, nothing hidden in it."""
    try:
        parts = split_url(url)
    except ValueError:
        return False
    is_plain = not (parts.fragment or parts.username or parts.password) and not {".", ".."} & set(parts.path.split("/"))
    has_scheme = parts.scheme == "https" or (is_local and parts.hostname in _LOOPBACK)
    return len(url) <= 2048 and is_plain and has_scheme and len(parts.path) > 1


def _drop_port(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition(":")[0] if parts.port is not None else parts.netloc).geturl()
