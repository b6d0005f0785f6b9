"""The console's page as files: paths, policy, size, and the libraries that come with it."""

import hashlib
import re
from pathlib import Path

import pytest

from tests.parts.console.conftest import OpenSite

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

SOURCE = Path(__file__).parents[3] / "src/toolpost"
PAGES = SOURCE / "parts/console/pages"
BUNDLED = '[plugins]\nbundled = ["bus", "approvals"]\n'


PATHS = (
    *("/", "/tools", "/tools/a__b", "/servers", "/servers/x", "/contracts", "/calls", "/calls/c-1"),
    *("/chat", "/chat/t-1", "/bus", "/approvals", "/tasks", "/tasks/"),
)


async def test_every_view_is_the_one_page_and_other_paths_are_not(site: OpenSite) -> None:
    async with site(BUNDLED, bundled=True) as opened:
        views = [await opened.http.get(path) for path in PATHS]
        missing = [await opened.http.get(path) for path in ("/nothing", "/console/nothing.js", "/serversx")]
        escaped = await opened.http.get("/console/..%2f..%2fpart.py")

    assert {(view.status_code, view.text) for view in views} == {(200, (PAGES / "index.html").read_text())}
    assert [answer.status_code for answer in (*missing, escaped)] == [404] * 4
    policy = views[0].headers["content-security-policy"]
    assert "script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "trusted-types 'none'" in policy


async def test_every_part_brings_its_view_with_its_files(site: OpenSite) -> None:
    async with site(BUNDLED, bundled=True) as opened:
        views = (await opened.get("/views"))["views"]
        modules = [await opened.http.get(view["module"]) for view in views]
        missing = [await opened.http.get(path) for path in ("/views/bus/nothing.js", "/views/bus/../../part.py")]

    assert {view["title"]: (view["path"], view["group"]) for view in views} == {
        "Overview": ("/", "observe"),
        "Calls": ("/calls", "observe"),
        "Logs": ("/logs", "observe"),
        "Tools": ("/tools", "tools"),
        "Servers": ("/servers", "tools"),
        "Contracts": ("/contracts", "tools"),
        "Chat": ("/chat", "products"),
        "Bus": ("/bus", "products"),
        "Approvals": ("/approvals", "products"),
        "Tasks": ("/tasks", "products"),
        "Callers": ("/callers", "administration"),
    }
    assert all("export function View(" in module.text for module in modules)
    assert [answer.status_code for answer in missing] == [404] * 2


async def test_a_wrong_address_is_a_page_for_browsers_and_json_for_programs(site: OpenSite) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    async with site() as opened:
        shown = [await opened.http.get(path, headers=browser) for path in ("/nothing", "/bus", "/console/nothing")]
        program = [await opened.http.get(path) for path in ("/nothing", "/bus", "/console/nothing")]
        api = await opened.http.get("/api/nothing", headers=browser)
        posted = await opened.http.post("/nothing", headers=browser)
    async with site("[console]\nenabled = false\n") as opened:
        without = await opened.http.get("/nothing", headers=browser)

    assert {(answer.status_code, answer.text) for answer in shown} == {(404, (PAGES / "index.html").read_text())}
    assert all("script-src 'self'" in answer.headers["content-security-policy"] for answer in shown)
    for answer in (*program, api, without):
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")
    assert posted.status_code == 405


async def test_it_can_be_turned_off(site: OpenSite) -> None:
    paths = ("/", "/bus", "/tasks", "/views/tasks/tasks.js", "/console/app.js", "/api/console/session")
    async with site(f"[console]\nenabled = false\n{BUNDLED}", bundled=True) as opened:
        answers = [await opened.http.get(path) for path in paths]
        tasks = await opened.http.get("/api/tasks")

    assert [answer.status_code for answer in answers] == [404] * len(paths)
    assert tasks.status_code == 200, "what a view reads is there without it"


def test_the_libraries_are_as_they_were_published() -> None:
    listed = re.findall(
        r"^\| `([\w.-]+)` \|.*\| `([0-9a-f]{64})` \|$", (PAGES / "vendor/README.md").read_text(), re.MULTILINE
    )
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in PAGES.glob("vendor/*.js")}

    assert dict(listed) == found


def test_no_text_becomes_html_and_nothing_is_inline() -> None:
    scripts = [file for file in SOURCE.rglob("*.js") if "vendor" not in file.parts]
    assert {"app.js", "calls.js", "bus.js", "chat.js", "tasks.js"} <= {file.name for file in scripts}
    for file in scripts:
        code = file.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", code), file
    index = (PAGES / "index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=", index)
    assert "//" not in index.replace("<!--", ""), "no address of another origin"
