"""What a path shows, when the tools change while it is computed."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from toolpost.base.ids import PluginName
from toolpost.discovery.catalog import Catalog
from toolpost.discovery.views import FilteredProvider, View
from toolpost.endpoints import calls
from toolpost.endpoints.calls import CallHandler
from toolpost.endpoints.listing import Listing

pytestmark = pytest.mark.anyio


class Outdated(Listing):
    """A listing that is replaced while what a view shows of it is computed."""

    handler: CallHandler
    next: Listing

    def narrow(self, view: View) -> Listing:
        self.handler.listing = self.next
        return super().narrow(view)


async def test_a_view_is_computed_again_if_the_tools_change_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "INLINE_VIEW_TOOLS", -1)
    catalog = Catalog([FilteredProvider(name=PluginName("files"), tools={}, quarantined={})])
    view = View(source="files")
    outdated = Outdated(catalog, scope="public")
    handler = CallHandler(
        cast("Any", SimpleNamespace(catalog=catalog)),
        outdated,
        cast("Any", None),
        cast("Any", None),
        open_owner=cast("Any", None),
    )
    outdated.handler, outdated.next = handler, Listing(catalog, scope="public")

    await handler.prepare(view)

    assert handler.listing is outdated.next
    assert handler.is_ready(view)
