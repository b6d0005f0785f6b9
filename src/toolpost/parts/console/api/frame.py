"""The frame of the console: one page at the paths of all views, whose script loads the module of the view that is shown.

GET /api/console/views   the views of all parts: {title, path, group, module}, `module` being the address of its file
GET /console/…           the files of the frame and of the console's own views; parts import from `/console/kit.js`
GET /views/NAME/…        the files of another part's view
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolpost.base import Json
from toolpost.endpoints.http import HttpContext, Pages, Route, RouteRequest, Routes
from toolpost.parts import ConsoleView
from toolpost.parts.console.context import Console

FOLDER: Final = Path(__file__).parent.parent / "pages"


def routes_of(console: Console) -> list[Route]:
    """Make the path of the list."""

    async def list_views(_: RouteRequest) -> Json:
        views = console.http.views
        return {
            "views": [
                {"title": view.title, "path": view.path, "group": view.group, "module": _find_address(view)}
                for view in views
            ]
        }

    return [console.read("/views", list_views)]


def make_pages(http: HttpContext) -> Sequence[Routes]:
    """Make the paths of the page, and of the files of all views."""
    paths = [path for view in http.views for path in ((view.path, f"{view.path}/") if view.path != "/" else ("/",))]
    files = {_find_folder(view): view.module.parent for view in http.views if not _is_own(view)}
    return [
        *(Pages(http.access, path, folder, title="the view", shows_media=True) for path, folder in files.items()),
        Pages(http.access, "/console", FOLDER, title="the console", views=paths, shows_media=True),
    ]


def _is_own(view: ConsoleView) -> bool:
    return view.module.is_relative_to(FOLDER)


def _find_folder(view: ConsoleView) -> str:
    return f"/views{view.path}"


def _find_address(view: ConsoleView) -> str:
    """Return the address of a view's module."""
    if _is_own(view):
        return f"/console/{view.module.relative_to(FOLDER).as_posix()}"
    return f"{_find_folder(view)}/{view.module.name}"
