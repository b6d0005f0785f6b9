"""One plugin served alone: its tools under their bare names, and nothing else."""

import msgspec
import pytest

from tests.ways import IN_MEMORY, QUICK_WAYS, Way
from toolpost.app import open_app
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings import PluginSettings
from toolpost.testing import data_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


def only(name: str, **settings: object) -> PluginSettings:
    return PluginSettings(only=name, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_a_plugin_alone_has_bare_names(way: Way) -> None:
    config = msgspec.structs.replace(IN_MEMORY, plugins=only("time"))
    async with open_app(config) as app, way.client_of(app) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        told = data_of(await client.call_tool("current_time", {"timezone": "Asia/Tokyo"}))

    assert "current_time" in names
    assert not any("__" in name for name in names)
    assert told["timezone"] == "Asia/Tokyo"


async def test_a_plugin_that_is_not_there_is_named() -> None:
    config = msgspec.structs.replace(IN_MEMORY, plugins=only("tine"))
    with pytest.raises(BadConfiguration, match="Unknown plugin `tine`") as raised:
        async with open_app(config):
            pass

    assert raised.value.hint == "did you mean `time`?"


async def test_a_plugin_that_is_left_out_cannot_be_served_alone() -> None:
    config = msgspec.structs.replace(IN_MEMORY, plugins=only("bus", disable=["bus"]))
    with pytest.raises(BadConfiguration, match="is disabled"):
        async with open_app(config):
            pass
