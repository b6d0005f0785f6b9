"""The servers of the console: what is shown of them, and changes of `toolpost.toml`."""

import hashlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.hostile.attacks import attack
from tests.parts.console.conftest import OpenSite, Site
from tests.parts.console.test_sessions import ANN, BOB, callers  # noqa: F401 (a fixture)
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

SMALL = Path(__file__).parents[2] / "cli/servers/small.py"
SECRET = "hush-hush-123"


def server(name: str, kind: str = "fine", more: str = "") -> str:
    args = json.dumps(["-S", "-E", str(SMALL), kind])
    env = f'env = {{SMALL_TOKEN = "{SECRET}"}}\n'
    return f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n{env}{more}"


def entry(kind: str = "fine") -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-S", "-E", str(SMALL), kind]}


async def test_a_server_is_shown_without_its_secrets_and_can_be_stopped_and_started(site: OpenSite) -> None:
    async with site(server("small"), log_in=True) as opened:
        shown = await opened.get("/server", name="small")
        stopped = await opened.change("/server/act", name="small", action="stop")
        started = await opened.change("/server/act", name="small", action="start")
        unknown = await opened.post("/server/act", name="smal", action="start")
        nonsense = await opened.post("/server/act", name="small", action="explode")

    assert (shown["state"], shown["tools"], stopped["state"], started["state"]) == ("ready", 1, "stopped", "ready")
    assert (shown["isHalted"], stopped["isHalted"], started["isHalted"]) == (False, True, False)
    assert shown["settings"]["command"] == sys.executable
    assert shown["settings"]["env"] == {"SMALL_TOKEN": "…"}
    assert SECRET not in json.dumps(shown)
    assert (unknown.status_code, unknown.json()["error"]["hint"]) == (404, "did you mean `small`?")
    assert nonsense.status_code == 404


async def test_a_secret_without_a_name_that_says_so_is_not_shown(
    site: OpenSite,
    callers: str,  # noqa: F811
) -> None:
    args = json.dumps(["-S", "-E", str(SMALL), "fine", "--login", "bob:hunter2secret"])
    env = 'env = {CONN = "Server=db;Pwd=Sup3rS3cret!", PIN = "4711", REF = "${SMALL_REF:-x9}"}\n'
    text = f"[servers.small]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n{env}"
    async with site(text) as opened:
        without = await opened.get("/server", name="small")
        await opened.log_in()
        shown = (await opened.get("/server", name="small"))["settings"]
    async with site(text + callers, token=ANN) as guarded:
        with_token = (await guarded.get("/server", name="small"))["settings"]

    assert without["settings"] is None, "everybody on the machine may look"
    assert "hunter2" not in json.dumps(without)
    assert shown["args"][-1] == "bob:hunter2secret"
    assert shown["env"] == {"CONN": "…", "PIN": "…", "REF": "${SMALL_REF:-…}"}
    assert with_token == shown


async def test_output_is_sent_as_it_comes_without_secrets(site: OpenSite) -> None:
    async with site(server("small"), log_in=True) as opened:
        seen: list[Any] = []
        with anyio.fail_after(20):
            path = "/api/console/events"
            async with opened.http.stream("GET", path, params={"server": "small"}) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        seen.append(json.loads(line[6:]))
                    if len(seen) == 2:
                        async with anyio.create_task_group() as tasks:
                            tasks.start_soon(lambda: opened.change("/server/act", name="small", action="stop"))
                    if any(event.get("state") == "stopped" for event in seen):
                        break

    assert seen[0] == {"kind": "servers", "states": {"small": "ready"}}
    assert seen[1]["stderrTail"] == ["small server here, token (redacted)"]


async def wait_for_servers(site: Site, *names: str) -> None:
    await until(lambda: sorted(site.app.servers.providers) == sorted(names))


async def wait_for_tools(site: Site, *names: str) -> None:
    await until(lambda: sorted(tool.contract.name for tool in site.app.gateway.catalog) == sorted(names))


COMMENTED = """# Our gateway. Ask Ann before you change it.
# (She knows.)
"""


async def test_a_server_is_added_and_removed_and_every_comment_stays(site: OpenSite) -> None:
    text = f"[limits] # of time\ntimeout_s = 30 # seconds\n\n# the first one\n{server('first')}"
    async with site(text, log_in=True) as opened:
        path = opened.folder / "toolpost.toml"
        path.write_text(COMMENTED + path.read_text())
        before = path.read_text()
        body = {"name": "second", "entry": entry()}
        plan = await opened.change("/servers/plan", **body)
        assert path.read_text() == before, "a plan changes nothing"
        await opened.change("/servers/change", **body, base=plan["base"])
        added = path.read_text()
        await wait_for_servers(opened, "first", "second")
        await wait_for_tools(opened, "first__echo", "second__echo")
        removal = await opened.change("/servers/plan", remove="first")
        await opened.change("/servers/change", remove="first", base=removal["base"])
        left = path.read_text()
        await wait_for_servers(opened, "second")

    assert [row["new"] for row in plan["diff"] if row["kind"] == "new"][1] == "[servers.second]"
    assert added.startswith(before)
    assert left.startswith(COMMENTED)
    assert "[limits] # of time\ntimeout_s = 30 # seconds\n" in left
    assert "first" not in left
    assert [row["old"] for row in removal["diff"] if row["kind"] == "gone"][:2] == [
        "# the first one",
        "[servers.first]",
    ]


async def test_a_server_that_does_not_start_changes_neither_the_file_nor_the_gateway(site: OpenSite) -> None:
    async with site(server("first"), log_in=True) as opened:
        path = opened.folder / "toolpost.toml"
        before = path.read_text()
        pids = (await opened.get("/server", name="first"))["pids"]
        body = {"name": "second", "entry": entry("dies")}
        plan = await opened.change("/servers/plan", **body)
        failed = await opened.post("/servers/change", **body, base=plan["base"])
        assert path.read_text() == before
        assert list(opened.app.servers.providers) == ["first"]
        assert (await opened.get("/server", name="first"))["pids"] == pids

    error = failed.json()["error"]
    assert (failed.status_code, error["code"]) == (503, "UPSTREAM_UNAVAILABLE")
    assert "small server here" in error["stderr"]
    assert error["hint"] == "nothing was changed: go back and correct it", "no call starts a server that is not there"


async def test_a_file_that_was_changed_since_the_plan_is_not_written(site: OpenSite) -> None:
    async with site(log_in=True) as opened:
        path = opened.folder / "toolpost.toml"
        body = {"name": "second", "entry": entry()}
        plan = await opened.change("/servers/plan", **body)
        path.write_text(f"{path.read_text()}\n# by hand\n")
        refused = await opened.post("/servers/change", **body, base=plan["base"])

        assert refused.status_code == 400
        assert "was changed since" in refused.json()["error"]["message"]
        assert "second" not in path.read_text()
        assert opened.app.servers.providers == {}


async def test_pasted_servers_leave_their_secrets_out_of_the_file(site: OpenSite) -> None:
    pasted = {"mcpServers": {"a b": {**entry(), "env": {"SMALL_TOKEN": "sk-1234567890abcdef"}}}}
    async with site(log_in=True) as opened:
        plan = await opened.change("/servers/plan", text=json.dumps(pasted))
        kept = await opened.change("/servers/plan", text=json.dumps(pasted), keepSecrets=True)
        wrong = await opened.post("/servers/plan", text='{"mcpServers": []}')
        none = await opened.post("/servers/plan", text="{}")

    assert plan["servers"] == ["a-b"]
    assert "sk-1234567890abcdef" not in json.dumps(plan)
    assert any("SMALL_TOKEN: set it before Toolpost starts" in note for note in plan["notes"])
    assert "sk-1234567890abcdef" not in json.dumps(kept)
    assert any('SMALL_TOKEN = "…"' in (row["new"] or "") for row in kept["diff"])
    assert wrong.json()["error"]["message"] == "the pasted text: `mcpServers` is not an object."
    assert none.status_code == 400


WRITTEN = r"""
[servers.other]
enabled = false
url = "https://ann:s3cretpass@example.org/mcp"
credentials = "caller"
tags = ["shown"]
headers = {X-Tenant = 'tenant-one-2-three', Authorization = "Bearer ${OTHER_TOKEN}"}
[servers.third]
enabled = false
command = "third"
[servers.third.env]
PLAIN = "plain-looking \u0070assphrase"
# OLD = "was-hidden-once"
# see plain-looking passphrase
LINES = '''
first-hidden-line
second-hidden-line'''
"""


async def test_a_plan_shows_no_secrets_of_the_file(site: OpenSite) -> None:
    async with site(server("first") + WRITTEN, log_in=True) as opened:
        path = opened.folder / "toolpost.toml"
        before = path.read_text()
        added = await opened.change("/servers/plan", name="new", entry={**entry(), "env": {"TZ": "UTC"}})
        plans = [added, *[await opened.change("/servers/plan", remove=name) for name in ("first", "other", "third")]]
        await opened.change("/servers/change", remove="first", base=plans[1]["base"])
        after = path.read_text()

    shown = json.dumps(plans, ensure_ascii=False)
    hidden = (SECRET, "s3cretpass", "tenant-one", "plain-looking", "assphrase", "was-hidden", "hidden-line")
    assert [text for text in hidden if text in shown] == []
    gone = [row["old"] for plan in plans[2:] for row in plan["diff"] if row["kind"] == "gone"]
    assert 'credentials = "caller"' in gone
    assert 'tags = ["shown"]' in gone
    assert '# OLD = "…"' in gone
    assert any('TZ = "UTC"' in (row["new"] or "") for row in added["diff"]), "what is added is looked at"
    assert before.endswith(WRITTEN.partition("[servers.other]")[2])
    assert after.endswith(WRITTEN.partition("[servers.other]")[2]), "what is written is the file"


async def test_others_than_administrators_see_the_servers_of_their_view_and_change_none(
    site: OpenSite,
    callers: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    text = server("seen", more='tags = ["team"]\n') + server("hidden") + callers + 'tags = ["team"]\n'
    async with site(text, token=BOB) as opened:
        listed = await opened.get("/servers")
        one = await opened.http.get("/api/console/server", params={"name": "hidden"})
        output = await opened.http.get("/api/console/events", params={"server": "hidden"})
        acted = await opened.post("/server/act", name="seen", action="stop")
        planned = await opened.post("/servers/plan", remove="seen")
        ann = await opened.http.get("/api/console/servers", headers={"Authorization": f"Bearer {ANN}"})

    assert listed == {"servers": [{"name": "seen", "state": "ready"}]}
    assert [answer.status_code for answer in (one, output, acted, planned)] == [403] * 4
    assert len(ann.json()["servers"]) == 2


async def test_who_is_no_longer_an_administrator_is_shown_nothing_more(
    site: OpenSite,
    callers: str,  # noqa: F811
) -> None:
    async with site(server("small") + callers, token=ANN) as opened:
        path = opened.folder / "toolpost.toml"
        with anyio.fail_after(20):
            query = {"server": "small", "calls": "1"}
            async with opened.http.stream("GET", "/api/console/events", params=query) as answer:
                lines = answer.aiter_lines()
                assert "servers" in await anext(lines)
                path.write_text(path.read_text().replace("admin = true\n", ""))
                async for _ in lines:
                    pass  # until the gateway ends it
            again = await opened.http.get("/api/console/events", params=query)

    assert again.status_code == 403


@attack(
    "caller",
    "has the token of an administrator, which every client's configuration contains, and adds a server to run a command",
    "settings about commands also need the cookie, in exchange for the terminal's secret",
)
async def test_a_token_is_not_the_right_to_run_commands(
    site: OpenSite,
    callers: str,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "toolpost.admin")
    body = {"name": "second", "entry": entry()}
    bad = {"name": "bad", "entry": {"command": "sh", "args": ["-c", "exit 1", "--token", "sk-1234567890abcdef"]}}
    async with site(server("first") + callers, token=ANN) as opened:
        path = opened.folder / "toolpost.toml"
        before = path.read_text()
        base = hashlib.sha256(before.encode()).hexdigest()
        refused = [
            await opened.post("/servers/plan", **body),
            await opened.post("/servers/change", **body, base=base),
            await opened.post("/servers/change", remove="first", base=base),
            await opened.post("/server/act", name="first", action="restart"),
            await opened.post("/contract/accept", tool="first__echo", digest="0"),
            await opened.post("/contract/plan", tool="first__echo", action="reject"),
            await opened.post("/contract/change", tool="first__echo", action="reject", base=base),
        ]
        assert (list(opened.app.servers.providers), path.read_text()) == (["first"], before)
        await opened.log_in()
        failed = await opened.post("/servers/change", **bad, keepSecrets=True, base=base)
        assert path.read_text() == before
        await opened.change("/servers/change", **body, base=base)
        bob = await opened.http.post("/api/console/servers/plan", json=body, headers={"Authorization": f"Bearer {BOB}"})

    assert [(answer.status_code, answer.json()["error"]["details"]) for answer in refused] == [
        (403, {"needs": "secret", "at": "/api/console/session"})
    ] * len(refused)
    assert failed.status_code != 200
    assert bob.status_code == 403, "the cookie makes nobody an administrator"
    asked = [record for record in caplog.records if record.message.startswith("change of servers asked for")]
    assert len(asked) == 2
    told = str([vars(record) for record in asked])
    assert "'ann'" in told
    assert "exit 1" in told, "a command that ended at once is told of"
    assert "sk-1234567890abcdef" not in told


async def test_settings_of_a_server_are_changed_after_a_look_at_the_difference(site: OpenSite, tmp_path: Path) -> None:
    text = f"# ours\n{server('small', more='timeout_s = 5.0 # quick')}\n"
    async with site(text, log_in=True) as opened:
        body = {"name": "small", "settings": {"deny": ["echo"], "timeout_s": None, "tags": ["a b", "c"]}}
        plan = await opened.change("/servers/plan", **body)
        unchanged = (tmp_path / "toolpost.toml").read_text()
        await opened.change("/servers/change", **body, base=plan["base"])
        provider = opened.app.servers.providers["small"]
        await until(lambda: not provider.tools)
        shown = (await opened.get("/server", name="small"))["settings"]
        stale = await opened.post("/servers/change", **body, base=plan["base"])

    written = (tmp_path / "toolpost.toml").read_text()
    assert unchanged.endswith(text)
    assert {row["new"].strip() for row in plan["diff"] if row["kind"] in ("new", "changed")} >= {
        'deny = ["echo"]',
        'tags = ["a b", "c"]',
    }
    assert any("timeout_s" in (row["old"] or "") for row in plan["diff"] if row["kind"] == "gone")
    assert (shown["deny"], shown["tags"]) == (["echo"], ["a b", "c"])
    assert "timeout_s" not in written
    assert "# ours" in written
    assert SECRET in written
    assert stale.status_code == 400


async def test_settings_that_a_server_cannot_have_change_nothing(
    site: OpenSite, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolpost.admin")
    async with site(server("small"), log_in=True) as opened:
        refused = [
            await opened.post("/servers/plan", name="small", settings=settings)
            for settings in ({"env": {"A": "b"}}, {"timeout_s": "soon"}, {"command": "…"}, {"contracts": "maybe"})
        ]
        unknown = await opened.post("/servers/plan", name="nobody", settings={"tags": []})
        body = {"name": "small", "settings": {"args": ["-c", "raise SystemExit(3)"]}}
        plan = await opened.change("/servers/plan", **body)
        caplog.clear()
        failed = await opened.post("/servers/change", **body, base=plan["base"])
        state = (await opened.get("/server", name="small"))["state"]
    async with site(server("small")) as without:
        forbidden = await without.post("/servers/plan", name="small", settings={"tags": []})

    assert [answer.status_code for answer in refused] == [400] * 4
    assert unknown.status_code == 404
    assert failed.status_code == 503
    assert state == "ready"
    assert "raise SystemExit" not in (tmp_path / "toolpost.toml").read_text()
    (asked,) = [each for each in caplog.records if each.message == "change of servers asked for"]
    assert "raise SystemExit(3)" in asked.__dict__["fields"]["runs"][0], "a command is logged before it is run"
    assert forbidden.status_code == 403


async def test_the_memory_of_a_server_is_shown_over_time(site: OpenSite) -> None:
    async with site(f"{server('small')}\n{server('dead', 'dies')}") as opened:
        measured = await until(lambda: measure_all(opened))
        shown = await opened.get("/server", name="small")

    assert shown["memory"] == measured
    assert shown["memory"][-1] > 1_000_000


async def measure_all(site: Site) -> list[int]:
    found: list[int] = (await site.get("/server", name="small"))["memory"]
    return found
