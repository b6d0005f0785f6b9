"""Catalogs and listings that were replaced do not wait for a collection of garbage."""

import gc
import weakref
from collections.abc import Callable

from toolpost.base.caller import Scope
from toolpost.base.ids import PluginName
from toolpost.discovery.catalog import Catalog
from toolpost.discovery.views import FilteredProvider, View
from toolpost.endpoints.listing import Listing

SEEN = View(scopes=(Scope(tools=("files__*",)),))


def test_a_listing_and_its_catalog_are_freed_with_their_last_reference() -> None:
    catalog = Catalog([FilteredProvider(name=PluginName("files"), tools={}, quarantined={})])
    listing = Listing(catalog, scope="public")
    catalog.narrow(SEEN)
    listing.narrow(SEEN)
    held: list[Callable[[], object]] = [weakref.ref(catalog), weakref.ref(listing)]
    gc.disable()
    try:
        del catalog, listing
        assert [each() for each in held] == [None, None]
    finally:
        gc.enable()
