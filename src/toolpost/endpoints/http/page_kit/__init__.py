"""`/kit/`: the shared code of all parts' pages, so that no part needs another for it. `/api/pages` lists those pages.

bar.js    the bar on top of a page: all pages, the theme
lists.js  tables, badges, times; refreshing while the page is visible
api.js    requests to the gateway, the dialog that asks for a token, elements made of text
kit.css   colors of both themes, fonts, buttons, the dialog
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolpost.base.ids import Json
from toolpost.endpoints.http.pages import Pages
from toolpost.endpoints.http.routes import HttpContext, JsonApi, Route, RouteRequest, Routes

KIT_PATH: Final = "/kit"
PAGES_PATH: Final = "/api/pages"


def make_page_kit(http: HttpContext) -> Sequence[Routes]:
    """Make the paths."""

    async def list_pages(_: RouteRequest) -> Json:
        return {"pages": [{"title": title, "path": path} for title, path in http.pages.items()]}

    return [
        Pages(http.access, KIT_PATH, Path(__file__).parent, title="what pages share"),
        JsonApi(http, [Route(method="GET", path=PAGES_PATH, handler=list_pages)]),
    ]
