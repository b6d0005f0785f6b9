"""`/api/console/callers`: who may call, what each sees, and how much it has called."""

import pytest

from tests.parts.console.conftest import OpenSite
from tests.parts.console.test_run import run
from tests.parts.console.test_tools import CALLERS, TOKENS, make_shop, tokens
from toolpost.store import audit

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

__all__ = ["tokens"]  # a fixture


async def test_callers_their_limits_and_their_calls(
    site: OpenSite, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(CALLERS, make_shop(), token=TOKENS["ann"], store=store_url) as opened:
        for number in (1, "x"):
            await run(opened, tool="shop__cancel_order", arguments={"number": number})
        await run(opened, tool="shop__list_orders", arguments={"customer": "x"}, caller="ben")
        found = await opened.get("/callers/usage")
        bad = await opened.http.get("/api/console/callers/usage", params={"age": "1y"})
        monkeypatch.setattr(audit, "USAGE_LIMIT", 1)
        cut = await opened.get("/callers/usage", age="7d")
        opened.http.headers["Authorization"] = f"Bearer {TOKENS['ben']}"
        own = await opened.get("/callers/usage", age="1h")

    rows = {row["caller"]: row for row in found["callers"]}
    assert list(rows) == ["ann", "ben", "cal", "ann as ben"]
    ann, ben, cal, acted = rows.values()
    assert (ann["isAdmin"], ann["ways"], ann["tools"], ann["limits"]) == (True, ["token"], 2, [])
    assert (ann["calls"], ann["failed"]) == (2, 1)
    assert ann["lastAt"].endswith("Z")
    assert (ben["isAdmin"], ben["tools"], ben["limits"]) == (False, 1, ["tools shop__list_*"])
    assert "calls" not in ben
    assert (cal["tools"], cal["limits"]) == (1, ["read-only tools"])
    assert (acted["isConfigured"], acted["calls"]) == (False, 1)
    assert not found["isCut"]
    assert "token-of" not in str(found)
    assert bad.status_code == 400
    assert cut["isCut"]
    assert sum(row.get("calls", 0) for row in cut["callers"]) == 1
    assert [row["caller"] for row in own["callers"]] == ["ben"], "nobody else is told of"
