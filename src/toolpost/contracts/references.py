"""Where the references of a schema lead. Nothing outside the document is ever fetched."""

from collections.abc import Iterable
from urllib.parse import unquote, urldefrag, urljoin

from toolpost.base.ids import JsonObject
from toolpost.contracts.parts import Part, draft_of, part_at, parts_of

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class References:
    """Where the references of one document lead, inside it: pointers, anchors and embedded resources."""

    def __init__(self, raw: JsonObject, parts: Iterable[Part] | None = None) -> None:
        """Read the document; whoever has its parts already saves the time to find them again."""
        self._raw = raw
        self._id_keyword = "id" if draft_of(raw) == 4 else "$id"
        self._resources: dict[str, str] = {"": ""}
        self._anchors: dict[tuple[str, str], str] = {}
        self._bases: dict[str, str] = {}
        """The base of every schema in the document, by its place."""
        self._dynamic: dict[str, list[str]] = {}
        above: list[str] = []
        for part in parts_of(raw) if parts is None else parts:
            # Outer schemas come before inner ones, so what is above this one is the last that was read at each lesser depth.
            del above[part.depth :]
            above.append(self._read(part, above[-1] if above else ""))

    def _read(self, part: Part, base: str) -> str:
        if isinstance(identity := part.schema.get(self._id_keyword), str):
            address, anchor = _split(identity)
            if address:
                base = _join(base, address)
                self._resources[base] = part.place
            if anchor:
                self._anchors[base, anchor] = part.place
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := part.schema.get(keyword), str):
                self._anchors[base, name] = part.place
        if isinstance(name := part.schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(name, []).append(part.place)
        if part.schema.get("$recursiveAnchor") is True:
            self._dynamic.setdefault("", []).append(part.place)
        self._bases[part.place] = base
        return base

    def _base_at(self, place: str) -> str:
        # A reference may lead to where no schema is expected: what is there has the base of whatever is around it.
        while place and place not in self._bases:
            place = place.rpartition("/")[0]
        return self._bases[place]

    def targets(self, place: str, schema: JsonObject, keyword: str) -> list[str]:
        """Return every place that a reference may lead to: a dynamic one depends on the way by which it is reached."""
        target = self.target(place, schema, keyword)
        found = [] if target is None else [target]
        if keyword != "$ref" and isinstance(reference := schema[keyword], str):
            found += [other for other in self._dynamic.get(unquote(_split(reference)[1]), ()) if other != target]
        return found

    def target(self, place: str, schema: JsonObject, keyword: str) -> str | None:
        """Return the place that a reference in the schema at `place` leads to, or None."""
        reference = schema[keyword]
        if not isinstance(reference, str) or (keyword == "$recursiveRef" and reference != "#"):
            return None
        address, fragment = _split(reference)
        base = self._base_at(place)
        if address:
            base = _join(base, address)
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


def _join(base: str, address: str) -> str:
    try:
        return urljoin(base, address)
    except ValueError:
        return address
