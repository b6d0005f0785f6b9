"""What a server asks during a call of the playground: shown to the page that runs it, answered by that page alone."""

import json
import sys
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from tests.parts.console.conftest import OpenSite, Site
from tests.parts.console.test_run import events_of
from tests.parts.console.test_sessions import ANN, BOB, callers  # noqa: F401 (a fixture)
from tests.upstreams.behind import SERVERS
from toolpost.audit import AuditFilter

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

ERAS = pytest.mark.parametrize("era", ["handshake", ""], ids=["handshake", "stateless"])


def asking(era: str) -> str:
    """Return the settings of a server that asks back, of one era."""
    args = json.dumps([str(SERVERS / "asking.py"), *([era] if era else [])])
    return f"[servers.up]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n"


class Page:
    """What the playground does with a call: it reads its events, and answers what is asked."""

    def __init__(self, site: Site, **arguments: Any) -> None:
        self.site = site
        self.body = {"tool": "up__ask", "arguments": arguments}
        self.asked: list[Mapping[str, Any]] = []
        self.call_id = ""

    async def run(self, *responses: Any, key: str | None = None, **headers: str) -> Any:
        """Answer each request with the next response; returns what the server was told, or the last event."""
        left = list(responses)
        async with self.site.http.stream("POST", "/api/console/call", json=self.body) as stream:
            async with aclosing(events_of(stream)) as events:  # type: ignore[type-var]
                async for event in events:
                    self.call_id = event.get("callId", self.call_id)
                    for name, request in event.get("requests", {}).items():
                        self.asked.append(request)
                        answer = await self.answer(key or name, left.pop(0), **headers)
                        if answer.status_code != 200:
                            return answer
        if event["type"] == "result" and not event["result"]["isError"]:
            return json.loads(event["result"]["content"][0]["text"])
        return event

    async def answer(self, key: str, response: Any, **headers: str) -> Any:
        body = {"callId": self.call_id, "key": key} | ({} if response is None else {"response": response})
        return await self.site.http.post("/api/console/call/answer", json=body, headers=headers)


@ERAS
async def test_a_request_is_shown_and_answered(site: OpenSite, era: str) -> None:
    accepted = {"action": "accept", "content": {"name": "Ann"}}
    async with site(asking(era), log_in=True) as opened:
        form, url, roots = (Page(opened, what=what) for what in ("form", "url", "roots"))
        told = await form.run(accepted)
        went = await url.run({"action": "accept"})
        listed = await roots.run({"roots": [{"uri": "file:///work", "name": "work"}]})
        declined = await Page(opened, what="form").run({"action": "decline"})

    (shown,), (address,), (folders,) = form.asked, url.asked, roots.asked
    assert (shown["method"], shown["params"]["message"]) == ("elicitation/create", "Who are you?")
    assert shown["params"]["requestedSchema"]["required"] == ["name"]
    assert address["params"]["url"] == "https://example.com/pay"
    assert folders["method"] == "roots/list"
    assert (told, went, declined) == (accepted, {"action": "accept"}, {"action": "decline"})
    assert listed == {"roots": [{"uri": "file:///work", "name": "work"}]}


async def test_what_a_person_does_not_answer_is_refused(site: OpenSite) -> None:
    async with site(asking("handshake"), log_in=True) as opened:
        roots = await Page(opened, what="roots").run(None)
        sampling = Page(opened, what="sampling")
        refused = await sampling.run()

    assert roots["refused"] == -1
    # No person is asked to be a model: a part that has models answers, or the server is refused.
    assert (refused["refused"], sampling.asked) == (-32601, [])


async def test_two_requests_in_a_row(site: OpenSite) -> None:
    async with site(asking("handshake"), log_in=True) as opened:
        page = Page(opened, what="form")
        page.body["tool"] = "up__ask_twice"
        told = await page.run({"action": "cancel"}, {"roots": []})

    assert told == [{"action": "cancel"}, {"roots": []}]


async def test_only_the_page_of_the_call_answers(site: OpenSite, callers: str) -> None:  # noqa: F811
    async with site(callers + asking("handshake"), token=ANN) as opened:
        unknown = await Page(opened, what="form").run({"action": "accept"}, key="elicitation-9")
        strangers = await Page(opened, what="form").run({"action": "accept"}, Authorization=f"Bearer {BOB}")
        foreign = await Page(opened, what="form").run({"action": "accept"}, Origin="http://127.0.0.1:9")
        wrong = await Page(opened, what="form").run("yes")

    assert [answer.status_code for answer in (unknown, strangers, foreign, wrong)] == [404, 404, 403, 400]


async def test_without_the_secret_nothing_is_answered(site: OpenSite) -> None:
    async with site(asking("handshake"), log_in=True) as opened:
        refused = await Page(opened, what="form").run({"action": "accept"}, **{"X-Toolpost-Session-Secret": "another"})
        with anyio.fail_after(30):
            while not (found := await opened.app.store.audit.entries(AuditFilter(), limit=10)):
                await anyio.sleep(0.02)

    assert refused.status_code == 403
    # The page that ran it is gone.
    assert [one.entry.outcome for one in found] == ["cancelled"]
