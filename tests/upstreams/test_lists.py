"""Lists of servers: within limits, in slices, and lenient where the list makes sense all the same."""

import json
import logging
from typing import Any

import pytest

from toolpost.contracts.errors import UpstreamUnavailable
from toolpost.upstreams import lists
from toolpost.upstreams.lists import ListReader

pytestmark = pytest.mark.anyio


def page(items: Any, cursor: Any = None) -> bytes:
    return json.dumps({"tools": items} | ({"nextCursor": cursor} if cursor is not None else {})).encode()


async def test_pages_are_read_in_order_and_what_is_no_object_is_passed_over() -> None:
    reader = ListReader("up", "tools")

    assert await reader.take(page([{"name": "a", "x-more": [1, {"b": None}]}, 7, None], "next")) == "next"
    assert await reader.take(page([{"name": "b"}])) is None
    assert reader.items == [{"name": "a", "x-more": [1, {"b": None}]}, {"name": "b"}]


@pytest.mark.parametrize("tools", [None, {}, "tools", 5])
async def test_a_page_without_a_list_has_no_items(tools: Any) -> None:
    reader = ListReader("up", "tools")

    assert await reader.take(page(tools, 5)) is None
    assert reader.items == []


@pytest.mark.parametrize("raw", [b"[]", b"null", b"{", b'{"tools":[{"name":"\\ud8"}]}', b'{"tools":[{"a":\xff}]}'])
async def test_what_is_no_page_is_an_error_of_the_server(raw: bytes) -> None:
    with pytest.raises(UpstreamUnavailable, match="its list"):
        await ListReader("up", "tools").take(raw)


async def test_a_list_is_cut_within_a_page(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(lists, "ITEMS_LIMIT", 3)
    reader = ListReader("up", "tools")

    with caplog.at_level(logging.WARNING):
        cursors = [
            await reader.take(page([{"n": 1}, {"n": 2}], "b")),
            await reader.take(page([{"n": 3}, {"n": 4}], "c")),
        ]

    assert cursors == ["b", None]
    assert [item["n"] for item in reader.items] == [1, 2, 3]
    assert "list of tools cut short" in caplog.text


@pytest.mark.parametrize(("limit", "value"), [("LIST_LIMIT_BYTES", 10), ("ITEMS_LIMIT", 1)])
async def test_no_page_is_asked_for_beyond_the_limits(
    limit: str, value: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lists, limit, value)

    assert await ListReader("up", "tools").take(page([{"n": 1}], "b")) is None
    assert "list of tools cut short" in caplog.text


async def test_a_page_that_comes_again_is_the_last() -> None:
    reader = ListReader("up", "tools")

    assert [await reader.take(page([], "same")) for _ in range(2)] == ["same", None]
