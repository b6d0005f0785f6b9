"""Searches: definitions first, identifiers split and whole, phrases to the letter, filters, and files that have changed."""

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.hostile.attacks import attack
from tests.parts.workspace.repos import FILES, USERS, build, first, make_repo, paths, search, workspace_client, write
from toolpost.parts.workspace.query import glob_pattern
from toolpost.testing import error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

MORE = {
    **FILES,
    "src/uses.py": "from users import UserStore, getUserById\n\n\ndef caller():\n    return getUserById(UserStore())\n",
    "src/snake.py": "def get_user_by_name(name):\n    '''Look somebody up by how they are called.'''\n    return None\n",
    "tests/test_users.py": "def test_getUserById():\n    assert getUserById(1) is None\n",
    "src/shapes.ts": "export class Circle {\n  area(): number { return 3; }\n}\nclass Square {}\n",
}


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repo(tmp_path_factory.mktemp("search") / "shop", MORE)


@pytest.fixture(scope="module", autouse=True)
async def _built(shop: Path) -> None:
    async with workspace_client(shop) as client:
        await build(client)


@pytest.fixture
async def client(shop: Path) -> AsyncIterator[Client]:
    async with workspace_client(shop) as opened:
        yield opened


async def test_a_definition_comes_before_its_uses(client: Client) -> None:
    found = await search(client, "getUserById", top=10)

    assert found["hits"][0]["symbol"] == "UserStore.getUserById"
    assert [hit["isDefinition"] for hit in found["hits"]] == [True] + [False] * (len(found["hits"]) - 1)
    assert {hit["path"] for hit in found["hits"][1:]} >= {"src/uses.py", "src/app.js", "tests/test_users.py"}
    scores = [hit["score"] for hit in found["hits"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == 1


@pytest.mark.parametrize(
    ("query", "symbol"),
    [
        ("getuserbyid", "UserStore.getUserById"),
        ("UserStore.getUserById", "UserStore.getUserById"),
        ("`load_users()`", "load_users"),
        ("Circle::area", "Circle.area"),
        ("getUserByName", "get_user_by_name"),
        ("get user by name", "get_user_by_name"),
        ("look somebody up", "get_user_by_name"),
        ("reads users from a JSON file", "load_users"),
        ("nightly copy of the archive", "Backing up"),
    ],
)
async def test_names_and_words_lead_to_their_symbol(client: Client, query: str, symbol: str) -> None:
    assert (await first(client, query))["symbol"] == symbol


async def test_a_phrase_is_found_to_the_letter(client: Client) -> None:
    assert await paths(client, '"return self.users.get(number)"') == ["src/users.py"]
    assert await paths(client, '"return self.users get(number)"') == []
    assert (await first(client, '"assert getUserById(1) is None"'))["line"] == 2
    assert set(await paths(client, '"getUserById("', top=9)) == {
        *("src/users.py", "src/uses.py", "src/app.js", "tests/test_users.py")
    }


async def test_a_phrase_without_a_word_finds_nothing_and_says_so(client: Client) -> None:
    assert await search(client, '"=>"') | {"stale": []} == {
        "hits": [],
        "searched": ["shop"],
        "truncated": False,
        "stale": [],
        "failures": [],
    }


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"path": "src"}, lambda hit: hit["path"].startswith("src/")),
        ({"path": "src/*.js"}, lambda hit: hit["path"] == "src/app.js"),
        ({"path": "**/test_*.py"}, lambda hit: hit["path"] == "tests/test_users.py"),
        ({"path": "*.ts"}, lambda hit: hit["path"] == "src/shapes.ts"),
        ({"language": "javascript"}, lambda hit: hit["path"] == "src/app.js"),
        ({"kind": "method"}, lambda hit: hit["kind"] == "method"),
        ({"symbol": "UserStore.*"}, lambda hit: hit["symbol"].startswith("UserStore.")),
        ({"symbol": "load_users"}, lambda hit: hit["symbol"] == "load_users"),
        ({"mode": "prose"}, lambda hit: hit["language"] == "markdown"),
        ({"mode": "code"}, lambda hit: hit["language"] != "markdown"),
    ],
)
@pytest.mark.parametrize(("query", "regex"), [("user users area getUserById return", False), ("(?i)user|area", True)])
async def test_filters_hold(client: Client, filters: dict[str, Any], expected: Any, query: str, *, regex: bool) -> None:
    found = await search(client, query, top=50, regex=regex, **filters)

    assert found["hits"]
    assert all(expected(hit) for hit in found["hits"]), found["hits"]


async def test_capitals_matter_when_asked_for(client: Client) -> None:
    assert await paths(client, "GETUSERBYID", case=True) == []
    assert (await first(client, "getUserById", case=True))["path"] == "src/users.py"
    assert await paths(client, "USERSTORE", regex=True, case=True) == []
    assert await paths(client, "USERSTORE", regex=True) != []


async def test_a_pattern_matches_lines_and_definitions_come_first(client: Client) -> None:
    found = await search(client, r"User", regex=True, top=50)
    anchored = await search(client, r"^def \w+$|^def \w+\(name\):$", regex=True)

    defines = [hit["isDefinition"] for hit in found["hits"]]
    assert defines == sorted(defines, reverse=True)
    assert ("src/users.py", 8, "class UserStore:") in {
        (hit["path"], hit["line"], hit["headline"]) for hit in found["hits"]
    }
    assert [(hit["path"], hit["line"]) for hit in anchored["hits"]] == [("src/snake.py", 1)]


@attack(
    "caller",
    "searches with a pattern of exponential cost",
    "the pattern runs in linear time",
)
@pytest.mark.parametrize("query", ["(a+)+$", "(x+x+)+y", "(.*)*" * 20 + "z", "(?:a|a)*b", "[a-z]{1,1000}" * 3])
async def test_a_pattern_that_would_take_for_ever_elsewhere_ends(client: Client, query: str) -> None:
    started = time.monotonic()
    answer = await client.call_tool("workspace__search", {"query": query, "regex": True})
    took_s = time.monotonic() - started

    assert took_s < 30
    if answer.is_error:
        assert error_of(answer)["code"] == "INVALID_PARAMS"


@pytest.mark.parametrize("query", ["(", "a{2,1}", "[z-a]", "(?=x)", r"(a)\1", "a**", "(?P<x", "\\"])
async def test_a_pattern_that_is_none_is_refused(client: Client, query: str) -> None:
    error = error_of(await client.call_tool("workspace__search", {"query": query, "regex": True}))

    assert error["code"] == "INVALID_PARAMS"
    assert error["details"]["issues"][0]["path"] == "/query"


@pytest.mark.parametrize(
    "query",
    ["", "x" * 1_001, "   ", "\0", "'; DROP", "AND OR NOT", "name:*", "[TO}", "ünï", '"', '""', "a" * 900],
)
async def test_any_text_may_be_looked_for(client: Client, query: str) -> None:
    answer = await client.call_tool("workspace__search", {"query": query})

    assert not answer.is_error or error_of(answer)["code"] == "INVALID_PARAMS"


@pytest.mark.parametrize("path", ["[", "**", "***", "a/**/b", "\\", "(", "x" * 500, "*" * 100])
async def test_any_glob_may_be_asked_for(client: Client, path: str) -> None:
    answer = await client.call_tool("workspace__search", {"query": "user", "path": path})

    assert not answer.is_error or error_of(answer)["code"] == "INVALID_PARAMS"


@pytest.mark.parametrize(
    ("glob", "matching", "other"),
    [
        ("src", ["src", "src/a.py", "src/b/c.py"], ["src2/a.py", "a/src/b.py"]),
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc"]),
        ("src/*.py", ["src/a.py"], ["src/b/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/b/c/a.py"], ["a.py"]),
        ("**/x", ["x", "a/b/x"], ["ax"]),
        ("a?.c", ["ab.c", "z/ab.c"], ["a/.c"]),
    ],
)
def test_globs_are_read_as_git_reads_them(glob: str, matching: list[str], other: list[str]) -> None:
    pattern = re.compile(glob_pattern(glob))

    assert all(pattern.fullmatch(path) for path in matching)
    assert not any(pattern.fullmatch(path) for path in other)


async def test_lines_are_those_of_the_files_now(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    async with workspace_client(root) as client:
        await build(client)
        write(root, {"src/users.py": "# new\n" * 7 + USERS.replace("LIMIT = 100\n", "")})
        (root / "docs/guide.md").unlink()
        moved = await search(client, "getUserById")
        by_pattern = await search(client, "def getUserById", regex=True)
        gone = await search(client, "LIMIT")
        deleted = await search(client, "backing up")
        await build(client)
        fresh = await first(client, "getUserById")

    now = (root / "src/users.py").read_text().split("\n")
    for hit in (moved["hits"][0], by_pattern["hits"][0]):
        assert (hit["stale"], hit["symbol"], hit["headline"]) == (
            True,
            "UserStore.getUserById",
            now[hit["line"] - 1].strip(),
        )
        assert now[hit["startLine"] - 1].strip() == "def getUserById(self, number):"
    assert moved["stale"] == [{"repo": root.name, "path": "src/users.py", "state": "changed"}]
    assert gone["hits"] == []
    assert deleted["hits"] == []
    assert deleted["stale"] == [{"repo": root.name, "path": "docs/guide.md", "state": "gone"}]
    assert (fresh["stale"], fresh["startLine"]) == (False, moved["hits"][0]["startLine"])


async def test_a_file_replaced_by_a_link_out_of_the_root_is_not_read(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "shop")
    write(tmp_path, {"outside.py": USERS + "SECRET = 'outside'\n"})
    async with workspace_client(root) as client:
        await build(client)
        (root / "src/users.py").unlink()
        (root / "src/users.py").symlink_to(tmp_path / "outside.py")
        words = await search(client, "getUserById", context=50)
        pattern = await search(client, "SECRET", regex=True)

    assert [hit["path"] for hit in words["hits"]] == ["src/app.js"]
    assert pattern["hits"] == []
