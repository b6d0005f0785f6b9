"""MCP Apps of a plugin: pages that a host shows beside the results of tools, and that call tools themselves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from toolpost.authoring.content import Icon
from toolpost.authoring.resource import Resource, make_resource
from toolpost.base.ids import JsonObject
from toolpost.contracts.apps import MIME_TYPE, SCHEME

Permission = Literal["camera", "microphone", "geolocation", "clipboardWrite"]

CSP_FIELDS: Final = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
PERMISSIONS: Final = ("camera", "microphone", "geolocation", "clipboardWrite")


class AppOptions(TypedDict, total=False):
    """The options of an app, for editors and type checkers."""

    name: str | None
    title: str | None
    description: str | None
    icons: Sequence[Icon | str]
    meta: Mapping[str, Any] | None
    csp: Mapping[str, Sequence[str]] | None
    permissions: Sequence[Permission]
    domain: str | None
    prefers_border: bool | None


def make_app(
    uri: str,
    html: str | Path,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Sequence[Icon | str] = (),
    meta: Mapping[str, Any] | None = None,
    csp: Mapping[str, Sequence[str]] | None = None,
    permissions: Sequence[Permission] = (),
    domain: str | None = None,
    prefers_border: bool | None = None,
) -> Resource:
    """Declare a page as an app; a path is read whenever a host asks for the page."""
    if not uri.startswith(SCHEME):
        raise TypeError(f"`{uri}` is no URI of an app: those begin with `{SCHEME}`")
    for field in csp or {}:
        if field not in CSP_FIELDS:
            raise TypeError(f"`{uri}`: `csp` has no `{field}`; it has {', '.join(CSP_FIELDS)}")
    for permission in permissions:
        if permission not in PERMISSIONS:
            raise TypeError(f"`{uri}`: there is no permission `{permission}`; known: {', '.join(PERMISSIONS)}")
    ui: JsonObject = {
        "csp": {field: list(origins) for field, origins in (csp or {}).items()},
        "permissions": {permission: {} for permission in permissions},
        "domain": domain,
        "prefersBorder": prefers_border,
    }
    ui = {key: value for key, value in ui.items() if value is not None and value != {}}

    async def show_text() -> str:
        return str(html)

    def show_file() -> str:
        return Path(html).read_text(encoding="utf-8")

    return make_resource(
        show_file if isinstance(html, Path) else show_text,
        uri,
        name=name or uri.removeprefix(SCHEME),
        title=title,
        description=description,
        mime_type=MIME_TYPE,
        icons=icons,
        meta={**(meta or {}), **({"ui": ui} if ui else {})},
    )
