"""`tools/list` from prepared bytes: encoded once per revision, cut into pages, never rebuilt for a request."""

import base64
import binascii
from bisect import bisect_right
from functools import lru_cache
from typing import Final, Literal

from toolpost.base.caller import Scope
from toolpost.base.ids import Json, JsonObject
from toolpost.base.version import __version__
from toolpost.discovery import EVERYTHING, Catalog, View
from toolpost.discovery.automatic import AUTOMATIC_NAMES, Mode, automatic_definitions
from toolpost.discovery.catalog import SCOPES_LIMIT, VIEWS_LIMIT
from toolpost.protocol.era import SERVER_INFO, Revision
from toolpost.protocol.rpc import INVALID_PARAMS, ProtocolError, encode

PAGE_SIZE: Final = 1_000
TTL_MS: Final = 60_000

SERVER_NAME: Final = "toolpost"
SERVER_STAMP: Final = encode({SERVER_INFO: {"name": SERVER_NAME, "version": __version__, "title": "Toolpost"}})
"""What a result of the stateless era says about who sent it."""

_CURSOR_MARK = "after:"


class Listing:
    """The catalog as the wire shows it."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        page_size: int = PAGE_SIZE,
        scope: Literal["public", "private"],
        mode: Mode = "all",
    ) -> None:
        self.mode = mode
        self._catalog = catalog
        self._definitions = _listed(catalog, mode)
        self._names: list[str] = [definition["name"] for definition in self._definitions]
        self._page_size = page_size
        self._scope = scope
        self._prepared = lru_cache(maxsize=64)(self._prepare)
        self._seen = lru_cache(maxsize=VIEWS_LIMIT)(self._narrowed)
        self._shared = lru_cache(maxsize=SCOPES_LIMIT)(self._share_of)

    def narrow(self, view: View) -> "Listing":
        """Return the listing of what this view shows, made once."""
        return self if view is EVERYTHING else self._seen(view)

    def _narrowed(self, view: View) -> "Listing":
        if view.scopes:
            share = self._shared(view.scopes)
            return share if view.path == EVERYTHING else share.narrow(view.path)
        return self._of(view)

    def _share_of(self, scopes: tuple[Scope, ...]) -> "Listing":
        return self._of(View(scopes=scopes))

    def _of(self, view: View) -> "Listing":
        seen = self._catalog.narrow(view)
        return Listing(seen, page_size=self._page_size, scope=self._scope, mode=self.mode)

    def serves(self, name: str) -> bool:
        """Whether a tool of this name, if there is one, can be called here."""
        return self.mode == "both" or (name in AUTOMATIC_NAMES) == (self.mode == "automatic")

    def page(self, revision: Revision, cursor: str | None, *, request_id: bytes) -> bytes:
        """Return the result of a `tools/list`."""
        start = 0
        if cursor:
            try:
                start = bisect_right(self._names, _read(cursor))
            except (binascii.Error, ValueError) as error:
                raise ProtocolError(
                    INVALID_PARAMS, "The cursor was not issued by this server", request_id=request_id
                ) from error
        return self._prepared(revision, start)

    def _prepare(self, revision: Revision, start: int) -> bytes:
        end = start + self._page_size
        fields: list[bytes] = [
            b'"tools":[%b]' % b",".join(self._encoded(d, revision) for d in self._definitions[start:end])
        ]
        if end < len(self._names):
            fields.append(b'"nextCursor":%b' % encode(_written(self._names[end - 1])))
        if revision.is_modern:
            fields.append(b'"resultType":"complete","ttlMs":%d,"cacheScope":%b' % (TTL_MS, encode(self._scope)))
            fields.append(b'"_meta":%b' % SERVER_STAMP)
        return b"{%b}" % b",".join(fields)

    @staticmethod
    def _encoded(definition: JsonObject, revision: Revision) -> bytes:
        unknown = set(revision.unknown_fields)
        output = definition.get("outputSchema")
        if output is not None and not revision.is_modern and not _is_object_schema(output):
            # Before 2026-07-28 only an object may be described; the text says it all the same.
            unknown.add("outputSchema")
        return encode({k: v for k, v in definition.items() if k not in unknown} if unknown else definition)


def _listed(catalog: Catalog, mode: Mode) -> list[JsonObject]:
    """Choose what is listed, in the order of names."""
    listed = [] if mode == "all" else automatic_definitions(catalog)
    if mode != "automatic":
        listed += [_named(tool.contract.definition, catalog.listed_name(tool)) for tool in catalog]
    # The catalog's order is that of full names: own names, and the two beside them, have another.
    return sorted(listed, key=lambda definition: str(definition["name"]))


def _named(definition: JsonObject, name: str) -> JsonObject:
    return definition if definition["name"] == name else definition | {"name": name}


def _is_object_schema(schema: Json) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "object"


def _written(name: str) -> str:
    return base64.urlsafe_b64encode(f"{_CURSOR_MARK}{name}".encode()).decode()


def _read(cursor: str) -> str:
    text = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    if not text.startswith(_CURSOR_MARK):
        raise ValueError(cursor)
    return text.removeprefix(_CURSOR_MARK)
