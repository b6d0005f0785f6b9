"""Which calls are written into the journal of calls in flight, and into the audit, with what."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.discovery.test_modes import config_of, shop, with_servers
from tests.waiting import until
from tests.ways import QUICK_WAYS
from toolpost import Plugin
from toolpost.app import open_app
from toolpost.audit import AuditFilter
from toolpost.base.caller import Caller
from toolpost.base.ids import CallerId, Digest
from toolpost.contracts.digest import digest_of_bytes
from toolpost.middleware.audit import LARGE_BYTES
from toolpost.settings.model import StoreSettings
from toolpost.store.audit_values import AuditDraft
from toolpost.store.call_journal import CallJournal, Slot
from toolpost.testing import open_test_app

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("shop__look", {"what": "x"}),
    ("shop__buy", {"what": "x"}),
    ("shop__steal", {"what": "x"}),
    ("good__look", {}),
    ("other__look", {}),
)


async def test_every_call_is_journaled_also_of_tools_that_are_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[str] = []
    enter = CallJournal.enter

    def note(self: CallJournal, draft: AuditDraft) -> Slot | None:
        entered.append(draft.tool)
        return enter(self, draft)

    monkeypatch.setattr(CallJournal, "enter", note)
    config = with_servers(tmp_path, config_of(confirmed=["good"]), good=[], other=[])
    store = StoreSettings(url=f"sqlite:{tmp_path}/t.db")
    async with (
        open_app(msgspec.structs.replace(config, store=store), plugins=[shop]) as app,
        QUICK_WAYS[0].client_of(app) as client,
    ):
        for name, arguments in CALLS:
            assert not (await client.call_tool(name, arguments)).is_error
        found = await app.store.audit.entries(AuditFilter(), limit=10)

    # A server that is slow gets a task after all, which enters the call again.
    assert list(dict.fromkeys(entered)) == [name for name, _ in CALLS]
    assert {record.entry.tool for record in found} == {name for name, _ in CALLS}
    assert not list(tmp_path.glob("**/*calls-*"))


async def test_a_call_that_is_cancelled_while_its_result_is_digested_has_the_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = Plugin("large", style="plain")
    digesting, may_go_on, digests = anyio.Event(), threading.Event(), list[Digest]()
    loop = asyncio.get_running_loop()

    @large.tool
    async def text() -> str:
        """Return more than a digest is made of at once."""
        return "x" * (LARGE_BYTES + 1)

    def wait(data: bytes) -> Digest:
        if len(data) > LARGE_BYTES:
            loop.call_soon_threadsafe(digesting.set)
            assert may_go_on.wait(60)
            digests.append(digest_of_bytes(data))
        return digest_of_bytes(data)

    monkeypatch.setattr("toolpost.middleware.audit.digest_of_bytes", wait)
    async with open_test_app(large) as app:
        call = app.gateway.admit(
            caller=Caller(id=CallerId("ada"), transport="memory"), name="large__text", arguments={}
        )
        task = asyncio.create_task(app.gateway.call(call))
        await digesting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_go_on.set()
        (found,) = await until(lambda: app.store.audit.entries(AuditFilter(), limit=10))

    assert (found.entry.outcome, found.entry.code) == ("cancelled", "CANCELLED")
    assert [found.entry.result] == digests
