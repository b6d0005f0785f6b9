"""Which calls are written into the journal of calls in flight before they are dispatched."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.discovery.test_modes import config_of, shop, with_servers
from tests.ways import QUICK_WAYS
from toolpost.app import open_app
from toolpost.audit import AuditFilter
from toolpost.settings.model import StoreSettings
from toolpost.store.audit_values import AuditDraft
from toolpost.store.call_journal import CallJournal, Slot

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
