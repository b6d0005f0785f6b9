"""The HTML of MCP Apps on its way to a host: with a script in front that gives an app's calls the names that are listed.

An app calls its server's tools by the server's own names. A host sends such a call to the gateway without a word about the app,
or refuses it because no such tool is listed. Only inside the app is it certain whose app it is (decision 0063).
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from toolpost.base.ids import JsonObject
from toolpost.contracts.apps import MIME_TYPE, SCHEME, qualify_uri

_SPACE: Final = re.compile(r"\s*")
_COMMENT: Final = re.compile(r"^[ \t]*//.*\n", re.MULTILINE)


def adapt_contents(result: JsonObject, server: str, listed_names: Mapping[str, str] | None) -> JsonObject:
    """Return the result of a `resources/read` with the URIs that clients see, and with the script in the pages of apps.

    `listed_names` has those names of tools that are not simply `server__name`; None where tools are listed under their own names.
    """
    contents = result.get("contents")
    if not isinstance(contents, list) or not any(_is_of_app(item) for item in contents):
        return result
    return result | {"contents": [_adapt(item, server, listed_names) for item in contents]}


def _is_of_app(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(uri := item.get("uri"), str) and uri.startswith(SCHEME)


def _adapt(item: Any, server: str, listed_names: Mapping[str, str] | None) -> Any:
    if not _is_of_app(item):
        return item
    adapted: JsonObject = item | {"uri": qualify_uri(server, item["uri"])}
    kind = item.get("mimeType")
    if listed_names is None or not isinstance(kind, str) or "".join(kind.split()).lower() != MIME_TYPE:
        return adapted
    if isinstance(text := item.get("text"), str):
        adapted["text"] = add_script(text, server, listed_names)
    elif isinstance(blob := item.get("blob"), str):
        try:
            page = base64.b64decode(blob, validate=True).decode()
        except (binascii.Error, ValueError):
            return adapted
        adapted["blob"] = base64.b64encode(add_script(page, server, listed_names).encode()).decode()
    return adapted


def add_script(page: str, server: str, listed_names: Mapping[str, str]) -> str:
    """Return a page with the script in front of everything but its doctype: a parser puts it into the head, before any other."""
    # Names come from a server: none may end the script.
    arguments = json.dumps([server, dict(listed_names)]).replace("<", "\\u003c")
    script = f"<script>{_read_script()}.apply(null, {arguments});</script>"
    start = _find_end_of_doctype(page)
    return page[:start] + script + page[start:]


def _find_end_of_doctype(page: str) -> int:
    """Return where the doctype of a page ends; 0 if it has none. Linear in the comments before it: a server wrote them."""
    position = 0
    while True:
        position = _SPACE.match(page, position).end()  # type: ignore[union-attr]  # it matches everywhere
        is_comment = page.startswith("<!--", position)
        if not is_comment and page[position : position + 9].lower() != "<!doctype":
            return 0
        mark = "-->" if is_comment else ">"
        if (end := page.find(mark, position)) < 0:
            return 0
        position = end + len(mark)
        if not is_comment:
            return position


@cache
def _read_script() -> str:
    text = files(__package__).joinpath("app_names.js").read_text(encoding="utf-8")
    return _COMMENT.sub("", text).strip()
