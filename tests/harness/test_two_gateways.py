"""Two gateways on one store: a conversation goes on at either, and what is scheduled comes once."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import msgspec
import pytest

from tests.harness.asking import ADA, asked
from tests.harness.test_bundled_plugins import CONFIG, opened, until, used_by_agent
from tests.store.conftest import url_of
from tests.ways import IN_MEMORY
from toolpost.config import StoreSettings
from toolpost.contracts.errors import NotFound
from toolpost.testing import ScriptedAgent, open_test_app

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_conversation_goes_on_at_another_gateway(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = url_of(kind, request, tmp_path / "store.db")
    config = msgspec.structs.replace(IN_MEMORY, store=StoreSettings(url=url))
    here, there = ScriptedAgent(), ScriptedAgent()
    async with (
        open_test_app(config=config, agents={"main": here}) as one,
        open_test_app(config=config, agents={"main": there}) as two,
    ):
        thread = (await one.harness.create_thread(ADA)).id
        await asked(one, thread, "red")
        await asked(two, thread, "green")
        await asked(one, thread, "blue")
        said = [m.text for m in await two.harness.read_messages(ADA, thread) if m.role == "user"]
        await one.harness.delete_thread(ADA, thread)
        with pytest.raises(NotFound):
            await asked(two, thread, "anybody?")

    assert said == ["red", "green", "blue"]
    assert '"text":"red"' in there.prompts[0]
    (session,) = here.sessions
    assert '"text":"green"' in session.prompts[1], "what was said elsewhere meanwhile is told to a warm session"
    assert '"text":"red"' not in session.prompts[1], "and what it knows is not told again"


async def test_what_is_scheduled_comes_once(tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, store=StoreSettings(url=f"sqlite:{tmp_path / 'store.db'}"))
    async with opened(config) as (one, _), opened(config) as (two, _):
        thread = (await one.harness.create_thread(ADA)).id
        await asked(one, thread, "say ready")
        soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
        assert "id" in await used_by_agent(one, thread, "schedule__add", prompt="count", at=soon)

        async def has_come() -> bool:
            return "count" in [m.text for m in await two.harness.read_messages(ADA, thread)]

        await until(has_come)
        await anyio.sleep(0.5)
        messages = await one.harness.read_messages(ADA, thread)

    assert [m.text for m in messages].count("count") == 1
