"""Apps and skills of plugins, as clients of both eras get them."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.counter import PAGE, plugin
from tests.upstreams.raw import Ask, raw_http
from tests.upstreams.test_notifications import Ear
from tests.waiting import until
from tests.ways import IN_MEMORY, STATELESS, Way
from toolpost import Plugin
from toolpost.app import open_app, open_http
from toolpost.authoring.skill import make_skills, read_frontmatter
from toolpost.contracts.skills import EXTENSION
from toolpost.providers.app_pages import add_script
from toolpost.settings import Config

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

ERAS = pytest.mark.parametrize("is_stateless", [False, True], ids=["handshake", "modern"])
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}

MANIFEST = """---
name: refunds
description: "How refunds are made: by whom, and until when."
license: Apache-2.0
metadata: {since: 2026-01-02, steps: 3}
---
# Refunds
Use the letter in `letters/`.
"""


@asynccontextmanager
async def open_raw(*plugins: Plugin, is_stateless: bool, config: Config = IN_MEMORY) -> AsyncIterator[Ask]:
    async with open_app(config, plugins=list(plugins), bundled=False) as app, open_http(app) as url:
        async with raw_http(url, is_stateless=is_stateless) as ask:
            yield ask


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    refunds = tmp_path / "skills" / "refunds"
    (refunds / "letters").mkdir(parents=True)
    (refunds / "SKILL.md").write_text(MANIFEST)
    (refunds / "letters" / "dear customer.md").write_text("Dear customer,")
    (refunds / "stamp.bin").write_bytes(b"\xff\x00")
    (refunds / "outside.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path / "skills"


# Apps


@pytest.mark.wire
@ERAS
async def test_the_app_of_a_plugin_is_listed_and_read_like_a_servers(is_stateless: bool) -> None:
    async with open_raw(plugin, is_stateless=is_stateless) as ask:
        tools = {tool["name"]: tool for tool in (await ask("tools/list", {}))["result"]["tools"]}
        resources = (await ask("resources/list", {}))["result"]["resources"]
        uri = "ui://counter__counter/page.html"
        contents = (await ask("resources/read", {"uri": uri}))["result"]["contents"]
        added = (await ask("tools/call", {"name": "add", "arguments": {}}))["result"]

    ui = {"csp": {"connectDomains": ["https://example.com"]}, "prefersBorder": True}
    kind = "text/html;profile=mcp-app"
    assert tools["counter__show"]["_meta"]["ui"] == {"resourceUri": uri}
    assert tools["counter__show"]["_meta"]["ui/resourceUri"] == uri
    assert tools["counter__add"]["_meta"]["ui"] == {"visibility": ["app"]}
    assert resources == [{"uri": uri, "name": "counter/page.html", "mimeType": kind, "_meta": {"ui": ui}}]
    page = add_script(PAGE, "counter", {})
    assert contents == [{"uri": uri, "mimeType": kind, "text": page, "_meta": {"ui": ui}}]
    assert added["structuredContent"]["count"] >= 1


@pytest.mark.parametrize("way", [Way("memory", "legacy"), Way("memory", STATELESS)], ids=str)
async def test_a_changed_app_is_announced_under_the_uri_that_is_listed(way: Way, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("one")
    shown, ear = Plugin("shown"), Ear()
    shown.app("ui://page.html", path)
    async with open_app(IN_MEMORY, plugins=[shown], bundled=False) as app, ear.client(app, way) as client:
        async with ear.following(client, way, "ui://shown__page.html"):
            path.write_text("two")
            shown.resource_updated("ui://page.html")
            await until(lambda: bool(ear.heard))
        contents: Any = (await client.read_resource("ui://shown__page.html")).contents
    assert ear.heard == ["updated ui://shown__page.html"]
    assert contents[0].text.endswith("two")


def test_what_is_wrong_with_an_app_is_said_where_it_is_declared() -> None:
    broken = Plugin("broken")
    with pytest.raises(TypeError, match="those begin with `ui://`"):
        broken.app("https://example.com", "")
    with pytest.raises(TypeError, match="`csp` has no `connect`; it has connectDomains"):
        broken.app("ui://a", "", csp={"connect": []})
    with pytest.raises(TypeError, match="no permission `screen`"):
        broken.app("ui://a", "", permissions=["screen"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="has no app `ui://b`; add it with"):
        broken.tool(app="ui://b")(lambda: None)
    with pytest.raises(TypeError, match="unknown visibility `models`"):
        broken.tool(visibility=["models"])(lambda: None)  # type: ignore[list-item]


# Skills


@pytest.mark.wire
@ERAS
async def test_skills_are_listed_with_digests_of_what_is_read(is_stateless: bool, skills: Path) -> None:
    helpful = Plugin("helpful")
    helpful.skills(skills)
    async with open_raw(helpful, plugin, is_stateless=is_stateless) as ask:
        announced = await ask(*(("server/discover", {}) if is_stateless else ("initialize", INITIALIZE)))
        listed = (await ask("skills/list", {}))["result"]
        resources = (await ask("resources/list", {}))["result"]["resources"]
        [skill] = listed["skills"]
        got = (await ask("skills/get", {"uri": skill["uri"]}))["result"]["skill"]
        unknown = await ask("skills/get", {"uri": "skill://helpful/other/SKILL.md"})
        folder = (await ask("resources/directory/read", {"uri": "skill://helpful/refunds"}))["result"]["resources"]
        no_folder = await ask("resources/directory/read", {"uri": skill["uri"]})
        texts = {
            file["uri"]: (await ask("resources/read", {"uri": file["uri"]}))["result"]["contents"][0]
            for file in skill["resources"]
        }
        (skills / "refunds" / "letters" / "dear customer.md").write_text("Dear Sir or Madam,")
        again = (await ask("skills/get", {"uri": skill["uri"]}))["result"]["skill"]
        (skills / "refunds" / "stamp.bin").unlink()
        gone = await ask("skills/list", {})

    assert announced["result"]["capabilities"]["extensions"][EXTENSION] == {"directoryRead": True}
    assert announced["result"]["capabilities"]["resources"] is not None
    assert ("ttlMs" in listed) == ("resultType" in listed) == is_stateless
    base = "skill://helpful/refunds"
    assert skill["uri"] == f"{base}/SKILL.md"
    assert skill["frontmatter"] == {
        "name": "refunds",
        "description": "How refunds are made: by whom, and until when.",
        "license": "Apache-2.0",
        "metadata": {"since": "2026-01-02", "steps": 3},
    }
    assert [file["uri"] for file in skill["resources"]] == [
        f"{base}/SKILL.md",
        f"{base}/letters/dear%20customer.md",
        f"{base}/stamp.bin",
    ]
    assert got == skill
    assert skill["_meta"] == {"dev.toolpost/meta": {"server": "helpful"}}
    assert [(child["uri"], child.get("mimeType")) for child in folder] == [
        (f"{base}/SKILL.md", "text/markdown"),
        (f"{base}/letters", "inode/directory"),
        (f"{base}/stamp.bin", "application/octet-stream"),
    ]
    assert no_folder["error"]["code"] == -32602
    assert again != skill
    assert gone["result"]["skills"] == []
    assert unknown["error"]["code"] == -32602
    for file in skill["resources"][:2]:
        content = texts[file["uri"]]["text"].encode()
        assert file["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert file["size"] == len(content)
        assert texts[file["uri"]]["mimeType"] == "text/markdown"
    assert texts[f"{base}/stamp.bin"]["blob"] == "/wA="
    first = next(resource for resource in resources if resource["uri"] == skill["uri"])
    assert (first["name"], first["description"]) == ("refunds", skill["frontmatter"]["description"])


@pytest.mark.wire
@ERAS
async def test_without_skills_there_are_no_such_methods(is_stateless: bool) -> None:
    async with open_raw(plugin, is_stateless=is_stateless) as ask:
        assert (await ask("skills/list", {}))["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("manifest", "complaint"),
    [
        ("# Refunds", "does not begin with frontmatter"),
        ("---\nname: others\ndescription: d\n---\n", "must be the name of its folder"),
        ("---\nname: refunds\n---\n", "has no `description`"),
        ("---\nname: [\n---\n", "its frontmatter is not YAML"),
        (f"---\nname: {'[' * 2_000}\n---\n", "its frontmatter is not YAML"),
    ],
)
def test_what_is_wrong_with_a_skill_is_said_where_it_is_declared(skills: Path, manifest: str, complaint: str) -> None:
    (skills / "refunds" / "SKILL.md").write_text(manifest)
    with pytest.raises(TypeError, match=complaint):
        Plugin("helpful").skills(skills)


def test_a_folder_is_a_skill_or_has_some(skills: Path, tmp_path: Path) -> None:
    assert [file.uri for file in make_skills("p", skills / "refunds")] == [
        file.uri for file in make_skills("p", skills)
    ]
    assert read_frontmatter(skills / "refunds" / "SKILL.md")["name"] == "refunds"
    with pytest.raises(TypeError, match="has no skills"):
        make_skills("p", skills / "refunds" / "letters")
    with pytest.raises(TypeError, match="is no folder"):
        make_skills("p", tmp_path / "nowhere")
