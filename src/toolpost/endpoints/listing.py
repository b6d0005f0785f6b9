"""`tools/list` from prepared bytes: encoded once per revision and page, never for a request."""

import base64
import binascii
from bisect import bisect_right
from typing import Final, Literal

from toolpost.base import JsonObject, Scope
from toolpost.base.method_caches import cache_method
from toolpost.base.version import __version__
from toolpost.discovery import EVERYTHING, View
from toolpost.discovery.automatic import AUTOMATIC_NAMES, Mode, automatic_definitions
from toolpost.discovery.catalog import SCOPES_LIMIT, VIEWS_LIMIT, Catalog
from toolpost.protocol.era import SERVER_INFO, Revision
from toolpost.protocol.rpc import INVALID_PARAMS, ProtocolError, encode

PAGE_SIZE: Final = 1_000
TTL_MS: Final = 60_000
"""How long clients may keep a complete list. An incomplete list has no lifetime: `list_changed` may reach no client."""

SERVER_NAME: Final = "toolpost"
SERVER_STAMP: Final = encode({SERVER_INFO: {"name": SERVER_NAME, "version": __version__, "title": "Toolpost"}})
"""The server's identity in the `_meta` of a result in the stateless era."""

_CURSOR_MARK = "after:"


class Listing:
    """The definitions of a catalog, as `tools/list` shows them."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        scope: Literal["public", "private"],
        mode: Mode = "all",
    ) -> None:
        self.mode = mode
        self._catalog = catalog
        listed = [] if mode == "all" else automatic_definitions(catalog)
        if mode != "automatic":
            listed += [catalog.listed_definition(tool) for tool in catalog]
        # The catalog is ordered by full names: without the server's part, and with the automatic tools, the order differs.
        self._definitions = sorted(listed, key=lambda definition: str(definition["name"]))
        self._names: list[str] = [definition["name"] for definition in self._definitions]
        self._scope = scope
        self._by_owner: dict[str, Listing] = {}
        self._page_cache = cache_method(self._write_page, 64)
        self._view_cache = cache_method(self._narrow, VIEWS_LIMIT)
        self._scope_cache = cache_method(self._narrow_to_scopes, SCOPES_LIMIT)

    def narrow(self, view: View) -> "Listing":
        """Return the listing of what this view shows; it is made once."""
        if view is EVERYTHING:
            return self
        return self._for_owner(view.owner).narrow(view.of_owner("")) if view.owner else self._view_cache(view)

    def _for_owner(self, owner: str) -> "Listing":
        catalog = self._catalog.for_owner(owner)
        if catalog is self._catalog:
            return self
        made = self._by_owner.get(owner)
        # The catalog of an owner is made again when its tools change.
        if made is None or made._catalog is not catalog:  # noqa: SLF001 (of its own kind)
            while len(self._by_owner) >= SCOPES_LIMIT:
                del self._by_owner[next(iter(self._by_owner))]
            made = self._by_owner[owner] = Listing(catalog, scope="private", mode=self.mode)
        return made

    def _narrow(self, view: View) -> "Listing":
        if view.scopes:
            scoped = self._scope_cache(view.scopes)
            return scoped if view.path == EVERYTHING else scoped.narrow(view.path)
        return self._make_for(view)

    def _narrow_to_scopes(self, scopes: tuple[Scope, ...]) -> "Listing":
        return self._make_for(View(scopes=scopes))

    def _make_for(self, view: View) -> "Listing":
        seen = self._catalog.narrow(view)
        return Listing(seen, scope=self._scope, mode=self.mode)

    def serves(self, name: str) -> bool:
        """Whether a tool of this name, if it exists, can be called on this endpoint."""
        return self.mode == "both" or (name in AUTOMATIC_NAMES) == (self.mode == "automatic")

    def page(self, revision: Revision, cursor: str | None, *, request_id: bytes) -> bytes:
        """Return the result of a `tools/list`; raise `ProtocolError` for an unknown cursor."""
        # A cursor is the last name of a page, not a number: a list that changed in between is continued at the right place.
        start = 0
        if cursor:
            try:
                start = bisect_right(self._names, decode_cursor(cursor))
            except (binascii.Error, ValueError) as error:
                raise ProtocolError(
                    INVALID_PARAMS, "The cursor was not issued by this server", request_id=request_id
                ) from error
        return self._page_cache(revision, start)

    def _write_page(self, revision: Revision, start: int) -> bytes:
        end = start + PAGE_SIZE
        fields: list[bytes] = [
            b'"tools":[%b]' % b",".join(self._encode_definition(d, revision) for d in self._definitions[start:end])
        ]
        if end < len(self._names):
            fields.append(b'"nextCursor":%b' % encode(encode_cursor(self._names[end - 1])))
        if revision.is_stateless:
            ttl_ms = TTL_MS if self._catalog.is_complete else 0
            fields.append(b'"resultType":"complete","ttlMs":%d,"cacheScope":%b' % (ttl_ms, encode(self._scope)))
            fields.append(b'"_meta":%b' % SERVER_STAMP)
        return b"{%b}" % b",".join(fields)

    @staticmethod
    def _encode_definition(definition: JsonObject, revision: Revision) -> bytes:
        unknown = set(revision.unknown_fields)
        output = definition.get("outputSchema")
        if (
            output is not None
            and not revision.is_stateless
            and not (isinstance(output, dict) and output.get("type") == "object")
        ):
            # Before 2026-07-28 an output schema must describe an object; the text content has the result in any case.
            unknown.add("outputSchema")
        return encode({k: v for k, v in definition.items() if k not in unknown} if unknown else definition)


def encode_cursor(name: str) -> str:
    """Write the cursor of the page after the one that ends with this name."""
    return base64.urlsafe_b64encode(f"{_CURSOR_MARK}{name}".encode()).decode()


def decode_cursor(cursor: str) -> str:
    """Return the name in a cursor; raise `ValueError` or `binascii.Error` for one that was not written here."""
    text = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    if not text.startswith(_CURSOR_MARK):
        raise ValueError(cursor)
    return text.removeprefix(_CURSOR_MARK)
