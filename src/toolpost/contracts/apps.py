"""MCP Apps in definitions: which `ui://` resource shows a tool's results, and whether models may see the tool.

An app belongs to one server, and two servers may use the same URI. So a URI is listed with the name of its plugin or server in
front, as the names of tools are: `ui://get-time/app.html` of the server `clock` is `ui://clock__get-time/app.html`.
"""

from typing import Any, Final

from toolpost.base.ids import Json, JsonObject

MIME_TYPE: Final = "text/html;profile=mcp-app"
EXTENSION: Final = "io.modelcontextprotocol/ui"

SCHEME: Final = "ui://"
SEPARATOR: Final = "__"

URI_KEY: Final = "ui/resourceUri"
"""Where older hosts look for the URI that `_meta.ui.resourceUri` has."""


def qualify_uri(provider: str, uri: str) -> str:
    """Return the URI that clients see: with the provider's name if it is an app's, else as it is."""
    return f"{SCHEME}{provider}{SEPARATOR}{uri.removeprefix(SCHEME)}" if uri.startswith(SCHEME) else uri


def split_uri(uri: str) -> tuple[str, str] | None:
    """Return provider and own URI of an app that clients see; None for any other URI."""
    provider, separator, own = uri.removeprefix(SCHEME).partition(SEPARATOR)
    return (provider, f"{SCHEME}{own}") if uri.startswith(SCHEME) and separator and "/" not in provider else None


def qualify_definition(provider: str, definition: JsonObject) -> JsonObject:
    """Return a definition whose `_meta` has the URIs that clients see; the same object if it names no app."""
    meta = definition.get("_meta")
    if not isinstance(meta, dict) or not (meta.keys() & {"ui", URI_KEY}):
        return definition
    return definition | {"_meta": qualify_meta(provider, meta)}


def qualify_meta(provider: str, meta: JsonObject) -> JsonObject:
    """Return a tool's `_meta` with the URIs that clients see."""
    named = dict(meta)
    if isinstance(uri := meta.get(URI_KEY), str):
        named[URI_KEY] = qualify_uri(provider, uri)
    ui = meta.get("ui")
    if isinstance(ui, dict) and isinstance(uri := ui.get("resourceUri"), str):
        named["ui"] = ui | {"resourceUri": qualify_uri(provider, uri)}
    return named


def select_app(meta: JsonObject, provider: str) -> JsonObject:
    """Return what a tool's `_meta` says about its app, with the provider's own URIs; empty without an app."""
    mark = f"{SCHEME}{provider}{SEPARATOR}"

    def own(uri: Json) -> Json:
        return f"{SCHEME}{uri.removeprefix(mark)}" if isinstance(uri, str) and uri.startswith(mark) else uri

    found: JsonObject = {}
    if isinstance(ui := meta.get("ui"), dict):
        found["ui"] = ui | ({"resourceUri": own(ui["resourceUri"])} if "resourceUri" in ui else {})
    elif "ui" in meta:
        found["ui"] = ui
    if URI_KEY in meta:
        found[URI_KEY] = own(meta[URI_KEY])
    return found


def has_app(definition: JsonObject) -> bool:
    """Whether the results of a tool are shown by an app, or it is there for one."""
    meta = _object(definition.get("_meta"))
    return URI_KEY in meta or bool(_object(meta.get("ui")))


def is_visible_to(reader: str, definition: JsonObject) -> bool:
    """Whether a tool is meant for `model` or for `app`; without a statement it is meant for both."""
    visibility = _object(_object(definition.get("_meta")).get("ui")).get("visibility")
    return not isinstance(visibility, list) or reader in visibility


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
