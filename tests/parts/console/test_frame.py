"""The console's page as files: paths, policy, size, and the libraries that come with it."""

import hashlib
import re
from pathlib import Path

import pytest

from tests.parts.console.conftest import OpenSite

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

PAGES = Path(__file__).parents[3] / "src/toolpost/parts/console/pages"
FIRST_VIEW_BYTES = 300 * 1024


async def test_every_view_is_the_one_page_and_other_paths_are_not(site: OpenSite) -> None:
    async with site() as opened:
        views = [
            await opened.http.get(path)
            for path in ("/", "/tools", "/tools/a__b", "/servers", "/servers/x", "/contracts", "/calls", "/calls/c-1")
        ]
        missing = [await opened.http.get(path) for path in ("/nothing", "/console/nothing.js", "/serversx")]
        escaped = await opened.http.get("/console/..%2f..%2fpart.py")

    assert {(view.status_code, view.text) for view in views} == {(200, (PAGES / "index.html").read_text())}
    assert [answer.status_code for answer in (*missing, escaped)] == [404] * 4
    policy = views[0].headers["content-security-policy"]
    assert "script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "trusted-types 'none'" in policy


async def test_it_can_be_turned_off(site: OpenSite) -> None:
    async with site("[console]\nenabled = false\n") as opened:
        answers = [await opened.http.get(path) for path in ("/", "/console/app.js", "/api/console/session")]
        pages = (await opened.http.get("/api/pages")).json()

    assert [answer.status_code for answer in answers] == [404] * 3
    assert "Console" not in str(pages)


def test_the_libraries_are_as_they_were_published() -> None:
    listed = re.findall(
        r"^\| `([\w.-]+)` \|.*\| `([0-9a-f]{64})` \|$", (PAGES / "vendor/README.md").read_text(), re.MULTILINE
    )
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in PAGES.glob("vendor/*.js")}

    assert dict(listed) == found


def test_no_text_becomes_html_and_nothing_is_inline() -> None:
    kit = Path(__file__).parents[3] / "src/toolpost/endpoints/http/page_kit"
    for file in (*PAGES.glob("*.js"), *PAGES.glob("views/*.js"), *kit.glob("*.js")):
        code = file.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", code), file
    index = (PAGES / "index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=", index)
    assert "//" not in index.replace("<!--", ""), "no address of another origin"
