"""Where the references of a schema lead. Nothing outside the document is ever fetched."""

from urllib.parse import unquote, urldefrag, urljoin

from toolpost.contracts.ids import JsonObject
from toolpost.contracts.parts import Part, draft_of, part_at, parts_of

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class References:
    """Where the references of one document lead, inside it: pointers, anchors and embedded resources."""

    def __init__(self, raw: JsonObject) -> None:
        self._raw = raw
        self._id_keyword = "id" if draft_of(raw) == 4 else "$id"
        self._resources: dict[str, str] = {"": ""}
        self._anchors: dict[tuple[str, str], str] = {}
        self._bases: list[tuple[str, str]] = []
        for part in parts_of(raw):
            self._read(part)

    def _read(self, part: Part) -> None:
        base = self._base_at(part.place)
        if isinstance(identity := part.schema.get(self._id_keyword), str):
            address, anchor = _split(identity)
            if address:
                base = _joined(base, address)
                self._bases.append((part.place, base))
                self._resources[base] = part.place
            if anchor:
                self._anchors[base, anchor] = part.place
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := part.schema.get(keyword), str):
                self._anchors[base, name] = part.place

    def _base_at(self, place: str) -> str:
        around = [base for above, base in self._bases if place == above or place.startswith(f"{above}/")]
        # Outer schemas are read before inner ones, so the last is the nearest.
        return around[-1] if around else ""

    def target(self, place: str, schema: JsonObject, keyword: str) -> str | None:
        """Return the place that a reference in the schema at `place` leads to, or None."""
        reference = schema[keyword]
        if not isinstance(reference, str) or (keyword == "$recursiveRef" and reference != "#"):
            return None
        address, fragment = _split(reference)
        base = self._base_at(place)
        if address:
            base = _joined(base, address)
        resource = self._resources.get(base)
        return None if resource is None else self._inside(resource, base, unquote(fragment))

    def _inside(self, resource: str, base: str, fragment: str) -> str | None:
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((base, fragment))
        place = resource + fragment
        return None if part_at(self._raw, place) is None else place


def _split(reference: str) -> tuple[str, str]:
    try:
        address, fragment = urldefrag(reference)
    except ValueError:
        # Half an IPv6 address, say: it leads nowhere, and whoever sent it decides what else we do.
        return reference, ""
    return address, fragment


def _joined(base: str, address: str) -> str:
    try:
        return urljoin(base, address)
    except ValueError:
        return address
