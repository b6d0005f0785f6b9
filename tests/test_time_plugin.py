"""The bundled `time` plugin, through a client; each of its arguments matters."""

import pytest
from mcp import Client

from toolpost.plugins.time import plugin
from toolpost.testing import assert_each_argument_matters, client_of, data_of, error_of

pytestmark = pytest.mark.anyio


async def test_the_time_here_and_elsewhere() -> None:
    async with client_of(plugin) as client:
        utc = data_of(await client.call_tool("time__current_time", {}))
        kolkata = data_of(await client.call_tool("time__current_time", {"timezone": "Asia/Kolkata"}))

    assert (utc["timezone"], utc["utcOffset"]) == ("UTC", "+00:00")
    assert (kolkata["timezone"], kolkata["utcOffset"], kolkata["isDst"]) == ("Asia/Kolkata", "+05:30", False)


async def test_a_time_is_converted() -> None:
    arguments = {
        "source_timezone": "Europe/Berlin",
        "time": "14:30",
        "target_timezone": "Asia/Tokyo",
        "date": "2026-07-01",
    }
    async with client_of(plugin) as client:
        data = data_of(await client.call_tool("time__convert_time", arguments))

    assert data["source"]["datetime"] == "2026-07-01T14:30:00+02:00"
    assert data["target"]["datetime"] == "2026-07-01T21:30:00+09:00"
    assert data["differenceHours"] == 7
    assert data["source"]["isDst"] is True


async def test_a_wrong_zone_is_refused_with_the_nearest() -> None:
    async with client_of(plugin) as client:
        zone = error_of(await client.call_tool("time__current_time", {"timezone": "Europe/Berlni"}))
        path = error_of(await client.call_tool("time__current_time", {"timezone": "../../etc/passwd"}))
        time = error_of(
            await client.call_tool(
                "time__convert_time", {"source_timezone": "UTC", "time": "25:00", "target_timezone": "UTC"}
            )
        )

    assert zone["code"] == "INVALID_PARAMS"
    assert zone["details"]["issues"][0]["suggestion"] == "did you mean `Europe/Berlin`?"
    assert path["code"] == "INVALID_PARAMS"
    assert time["details"]["issues"][0]["path"] == "/time"


async def test_each_argument_matters() -> None:
    base = {"source_timezone": "UTC", "time": "10:00", "target_timezone": "Asia/Tokyo", "date": "2026-01-01"}
    changed = {
        "source_timezone": "Europe/Berlin",
        "time": "11:00",
        "target_timezone": "America/New_York",
        "date": "2026-06-01",
    }
    async with client_of(plugin) as client:
        await assert_each_argument_matters(client, "time__convert_time", base=base, changed=changed)
        await assert_each_argument_matters(
            client,
            "time__current_time",
            base={},
            changed={"timezone": "Asia/Tokyo"},
            shown=lambda data: data["timezone"],
        )


async def test_an_argument_that_does_nothing_is_found_out() -> None:
    async with client_of(plugin) as client:
        with pytest.raises(AssertionError, match="`timezone` is declared, and changing it makes no difference"):
            await _ignoring_everything(client)
        with pytest.raises(AssertionError, match="no value to try"):
            await assert_each_argument_matters(client, "time__current_time", base={}, changed={})


async def _ignoring_everything(client: Client) -> None:
    await assert_each_argument_matters(
        client, "time__current_time", base={}, changed={"timezone": "Asia/Tokyo"}, shown=lambda _: "the same"
    )
