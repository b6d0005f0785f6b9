"""The bundled `time` plugin, through a client; each of its arguments matters."""

import itertools

import pytest
from mcp import Client

from tests.proofs import proves
from toolpost import Plugin
from toolpost.parts.time.plugin import plugin
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


@proves("time__convert_time", "source_timezone", "time", "target_timezone", "date")
@proves("time__current_time", "timezone")
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
    numbers = itertools.count()
    async with client_of(plugin) as client:
        with pytest.raises(AssertionError, match="`timezone` is declared, and changing it makes no difference"):
            await _ignoring_everything(client)
        with pytest.raises(AssertionError, match="no value to try"):
            await assert_each_argument_matters(client, "time__current_time", base={}, changed={})
        with pytest.raises(AssertionError, match="answers the same call differently each time"):
            await assert_each_argument_matters(
                client,
                "time__current_time",
                base={},
                changed={"timezone": "Asia/Tokyo"},
                shown=lambda _: next(numbers),
            )
        with pytest.raises(AssertionError, match="declares no `zone`"):
            await assert_each_argument_matters(client, "time__current_time", base={}, changed={"zone": "UTC"})


async def test_an_error_proves_nothing_unless_it_is_the_one_that_was_named() -> None:
    async def tried(refused: dict[str, str]) -> None:
        await assert_each_argument_matters(
            client, "broken__read", base={}, changed={"page": 2}, refused=refused, shown=str
        )

    async with client_of(broken) as client:
        with pytest.raises(AssertionError, match="gave an error, which proves nothing"):
            await tried({})
        with pytest.raises(AssertionError, match="is to be refused with NOT_FOUND, and changing it gave HANDLER_ERROR"):
            await tried({"page": "NOT_FOUND"})
        await tried({"page": "HANDLER_ERROR"})


async def test_what_an_earlier_call_left_behind_is_not_taken_for_a_difference() -> None:
    """As a builder does: to build with another mode makes the next build do something too, whatever it is told."""
    async with client_of(stateful) as client:
        with pytest.raises(AssertionError, match="`force` is declared, and changing it makes no difference"):
            await assert_each_argument_matters(
                client, "stateful__build", base={}, changed={"mode": "prose", "force": True}
            )


broken, stateful = Plugin("broken", version="1.0.0"), Plugin("stateful", version="1.0.0")
_modes = ["all"]


@broken.tool
async def read(page: int = 1) -> str:
    """Fail for every page but the first."""
    assert page == 1
    return "the first page"


@stateful.tool
async def build(mode: str = "all", force: bool = False) -> bool:
    """Say whether there was anything to do; `force` is forgotten."""
    before, _modes[0] = _modes[0], mode
    return before != mode


async def _ignoring_everything(client: Client) -> None:
    await assert_each_argument_matters(
        client, "time__current_time", base={}, changed={"timezone": "Asia/Tokyo"}, shown=lambda _: "the same"
    )
