"""The six tools as a client sees them: what they declare, what they return, and what they refuse."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.loaded import loaded_toolpost
from tests.parts.workspace.repos import (
    FILES,
    build,
    first,
    git,
    make_repo,
    search,
    workspace_app,
    workspace_client,
    write,
)
from tests.proofs import proves
from tests.ways import WAYS, Way, server_environment
from toolpost.base.ids import META_KEY
from toolpost.testing import assert_each_argument_matters, data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

TOOLS = ["check_status", "index_build", "index_status", "search", "show_file", "workspace_status"]


@proves("workspace__workspace_status")
@proves("workspace__check_status")
@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_every_tool_answers(way: Way, tmp_path: Path) -> None:
    """On stdio as it is bundled, beside the other tools; elsewhere alone."""
    root = make_repo(tmp_path / "shop")
    command, *arguments = loaded_toolpost("serve", "--stdio", "--with", "workspace")
    server = StdioServerParameters(command=command, args=arguments, env=server_environment(), cwd=str(root))
    opened = Client(server, mode=way.mode) if way.transport == "stdio" else workspace_client(root, way=way)
    async with opened as client:
        before = error_of(await client.call_tool("workspace__search", {"query": "UserStore"}))
        built = await build(client)
        hit = await first(client, "getUserById", context=1)
        plain = await first(client, "read every user from disk")
        shown = data_of(await client.call_tool("workspace__show_file", {"path": "src/users.py", "start": 8, "end": 9}))
        status = data_of(await client.call_tool("workspace__index_status", {}))
        whole = data_of(await client.call_tool("workspace__workspace_status", {}))
        check = data_of(await client.call_tool("workspace__check_status", {}))

    assert (before["code"], before["hint"]) == ("NO_INDEX", "build one with `index_build`")
    assert (built["files"], built["added"], built["skipped"]) == (3, 3, {})
    assert (hit["path"], hit["startLine"], hit["endLine"], hit["line"]) == ("src/users.py", 11, 13, 11)
    assert (hit["symbol"], hit["kind"], hit["isDefinition"]) == ("UserStore.getUserById", "method", True)
    assert (hit["headline"], hit["signature"]) == ("def getUserById(self, number):", "def getUserById(self, number):")
    assert [line["line"] for line in hit["lines"]] == [10, 11, 12]
    assert [line["text"] for line in shown["lines"]] == ["class UserStore:", '    """Keeps users."""']
    assert (status["exists"], status["files"], status["stale"]) == (True, 3, False)
    assert (status["git"]["branch"], status["git"]["dirty"]) == ("main", False)
    assert whole["totals"]["files"] == 3
    assert plain["symbol"] == "load_users"
    assert check["warnings"] == []


async def test_definitions_are_what_was_promised(tmp_path: Path) -> None:
    """A change here needs a new `schemaVersion`, unless it only adds."""
    async with workspace_client(tmp_path) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        kept = json.loads((Path(__file__).parent / "definitions.json").read_text())
        now = {
            name: {
                "inputSchema": tool.input_schema,
                "outputSchema": tool.output_schema,
                "schemaVersion": (tool.meta or {})[META_KEY]["schemaVersion"],
            }
            for name, tool in listed.items()
        }

    assert sorted(listed) == [f"workspace__{name}" for name in TOOLS]
    assert now == kept, "python -m tests.parts.workspace.definitions writes the definitions that there are"


async def test_every_error_that_is_met_was_promised(tmp_path: Path) -> None:
    root = make_repo(tmp_path, {**FILES, "binary": b"\0\1\2"})
    provoked: list[tuple[str, dict[str, Any], str]] = [
        ("search", {"query": "x"}, "NO_INDEX"),
        ("search", {"query": "x", "repo": "none"}, "NOT_FOUND"),
        ("index_build", {"repo": "none"}, "NOT_FOUND"),
        ("index_status", {"repo": "none"}, "NOT_FOUND"),
        ("show_file", {"path": "nowhere"}, "NOT_FOUND"),
        ("show_file", {"path": "../outside"}, "FORBIDDEN"),
        ("show_file", {"path": "binary"}, "INVALID_REQUEST"),
        *((name, {"strange": 1}, "INVALID_PARAMS") for name in TOOLS),
    ]
    async with workspace_app(root) as app, WAYS[0].client_of(app) as client:
        terms = [tool.contract.terms for tool in app.gateway.catalog]
        met = [error_of(await client.call_tool(f"workspace__{name}", arguments)) for name, arguments, _ in provoked]

    promised = {one.name.removeprefix("workspace__"): {str(code) for code in one.errors} for one in terms}
    assert [error["code"] for error in met] == [code for _, _, code in provoked]
    assert [(name, code) for name, _, code in provoked if code not in promised[name]] == []


async def test_unknown_arguments_are_refused(tmp_path: Path) -> None:
    async with workspace_client(tmp_path) as client:
        for name in TOOLS:
            needed = {"search": {"query": "x"}, "show_file": {"path": "x"}}.get(name, {})
            error = error_of(await client.call_tool(f"workspace__{name}", {**needed, "paht": "x"}))

            assert error["code"] == "INVALID_PARAMS", name
            assert error["details"]["issues"][0]["path"] == "/paht"


@proves(
    "workspace__search",
    *("query", "repo", "mode", "top", "context", "path", "language", "kind", "symbol", "case", "regex"),
)
@proves("workspace__show_file", "path", "repo", "start", "end")
@proves("workspace__index_status", "repo")
@proves("workspace__index_build", "repo", "mode", "incremental", "force")
async def test_each_argument_matters(tmp_path: Path) -> None:
    make_repo(tmp_path / "a")
    make_repo(tmp_path / "b", {"only.py": "def only_here(user):\n    return user\n", "read.md": "# User\nuser\n"})
    changed: dict[str, Any] = {
        "query": "archive",
        "repo": "b",
        "mode": "prose",
        "top": 1,
        "context": 2,
        "path": "src/*.js",
        "language": "markdown",
        "kind": "class",
        "symbol": "load_*",
        "case": True,
        "regex": True,
    }
    async with workspace_client(tmp_path, "a", "b") as client:
        await build(client)
        await assert_each_argument_matters(
            client, "workspace__search", base={"query": "USER", "top": 20}, changed=changed
        )
        await assert_each_argument_matters(
            client,
            "workspace__show_file",
            base={"path": "src/users.py", "start": 2},
            changed={"path": "docs/guide.md", "repo": "b", "start": 3, "end": 4},
            refused={"repo": "NOT_FOUND"},
        )
        await assert_each_argument_matters(
            client,
            "workspace__index_status",
            base={},
            changed={"repo": "b"},
            shown=lambda data: (data["repo"], data["files"]),
        )
        await assert_each_argument_matters(
            client,
            "workspace__index_build",
            base={},
            changed={"repo": "b", "mode": "prose", "incremental": False, "force": True},
            shown=lambda data: [{k: v for k, v in one.items() if k != "seconds"} for one in data["repositories"]],
        )


@pytest.mark.parametrize(
    "path",
    [
        "../outside.txt",
        "src/../../outside.txt",
        "/etc/passwd",
        "out",
        "folder/outside.txt",
        ".git/config",
        "token",
        "pipe",
        "src",
    ],
)
async def test_only_what_is_allowed_is_shown(path: str, tmp_path: Path) -> None:
    root = make_repo(tmp_path / "shop")
    write(tmp_path, {"outside.txt": "secret\n", "shop/token": "secret\n"})
    (root / "out").symlink_to(tmp_path / "outside.txt")
    (root / "folder").symlink_to(tmp_path)
    _make_pipe(root / "pipe")
    async with workspace_client(root, forbidden=frozenset({root / "token"})) as client:
        error = error_of(await client.call_tool("workspace__show_file", {"path": path}))

    assert error["code"] == "FORBIDDEN"
    assert "secret" not in json.dumps(error)


def _make_pipe(path: Path) -> None:
    import os

    os.mkfifo(path)


async def test_a_link_within_the_root_is_shown(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    (root / "link").symlink_to("src/users.py")
    async with workspace_client(root) as client:
        relative = data_of(await client.call_tool("workspace__show_file", {"path": "link", "end": 1}))
        absolute = data_of(
            await client.call_tool("workspace__show_file", {"path": str(root / "src/users.py"), "end": 1})
        )

    assert relative["lines"] == absolute["lines"]
    assert absolute["path"] == "src/users.py"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"path": "nowhere.py"}, "NOT_FOUND"),
        ({"path": "src/users.py/x"}, "NOT_FOUND"),
        ({"path": "src/users.py", "start": 9_999}, "INVALID_PARAMS"),
        ({"path": "src/users.py", "start": 5, "end": 4}, "INVALID_PARAMS"),
        ({"path": "src/users.py", "start": 0}, "INVALID_PARAMS"),
        ({"path": "a\0b"}, "INVALID_PARAMS"),
        ({"path": "src/users.py", "repo": "shpo"}, "NOT_FOUND"),
        ({"path": "x" * 3_000}, "FORBIDDEN"),
        ({"path": "binary"}, "INVALID_REQUEST"),
    ],
)
async def test_what_cannot_be_shown_is_refused(arguments: dict[str, Any], code: str, tmp_path: Path) -> None:
    root = make_repo(tmp_path / "shop", {**FILES, "binary": b"\0\1\2"})
    async with workspace_client(root) as client:
        error = error_of(await client.call_tool("workspace__show_file", arguments))

    assert error["code"] == code, error
    if "repo" in arguments:
        assert error["hint"] == "did you mean `shop`? the workspace has `shop`"


async def test_encodings_are_found_out(tmp_path: Path) -> None:
    files = {
        "utf8.txt": "grün\n".encode(),
        "bom.txt": b"\xef\xbb\xbfgr\xc3\xbcn\n",
        "utf16.txt": "grün\n".encode("utf-16"),
        "latin.txt": "grün\n".encode("latin-1"),
        "cookie.py": b"# -*- coding: koi8-r -*-\n" + "привет = 1\n".encode("koi8-r"),
        "crlf.txt": b"one\r\ntwo\rthree\n",
        "empty.txt": b"",
    }
    root = make_repo(tmp_path, files)
    async with workspace_client(root) as client:
        await build(client)
        shown = {name: data_of(await client.call_tool("workspace__show_file", {"path": name})) for name in files}
        found = await first(client, "привет")

    texts = {name: [line["text"] for line in one["lines"]] for name, one in shown.items()}
    assert texts["utf8.txt"] == texts["bom.txt"] == texts["utf16.txt"] == texts["latin.txt"] == ["grün"]
    assert texts["cookie.py"][1] == "привет = 1"
    assert texts["crlf.txt"] == ["one", "two", "three"]
    assert (texts["empty.txt"], shown["empty.txt"]["totalLines"]) == ([], 0)
    encodings = {name: one["encoding"] for name, one in shown.items()}
    assert encodings["utf16.txt"] == "utf-16"
    assert encodings["latin.txt"] == "latin-1"
    assert encodings["cookie.py"] == "koi8-r"
    assert found["path"] == "cookie.py"


async def test_a_long_file_is_shown_in_parts(tmp_path: Path) -> None:
    root = make_repo(tmp_path, {"long.txt": "".join(f"line {n}\n" for n in range(1, 5_001)), "wide.txt": "x" * 50_000})
    async with workspace_client(root) as client:
        seen: list[int] = []
        start: int | None = 1
        while start is not None:
            part = data_of(await client.call_tool("workspace__show_file", {"path": "long.txt", "start": start}))
            seen += [line["line"] for line in part["lines"]]
            start = part.get("nextStart")
        wide = data_of(await client.call_tool("workspace__show_file", {"path": "wide.txt"}))

    assert seen == list(range(1, 5_001))
    assert (len(wide["lines"][0]["text"]), wide["lines"][0]["cut"]) == (4_001, True)


async def test_several_repositories_are_searched_together(tmp_path: Path) -> None:
    make_repo(tmp_path / "one" / "shop")
    make_repo(tmp_path / "two" / "shop", {"bill.py": "def make_bill(user):\n    '''Make a bill for a user.'''\n"})
    make_repo(tmp_path / "third", {"a.py": "x = 1\n"})
    async with workspace_client(tmp_path, "one/shop", "two/shop", "third", "missing") as client:
        await build(client, repo="shop")
        await build(client, repo="shop-2")
        both = await search(client, "user", top=6)
        bill = await first(client, "make_bill")
        whole = data_of(await client.call_tool("workspace__workspace_status", {}))
        check = data_of(await client.call_tool("workspace__check_status", {}))
        built = data_of(await client.call_tool("workspace__index_build", {}))

    assert both["searched"] == ["shop", "shop-2"]
    assert {hit["repo"] for hit in both["hits"][:2]} == {"shop", "shop-2"}, "each with its best"
    assert [(one["repo"], one["code"]) for one in both["failures"]] == [("third", "NO_INDEX"), ("missing", "NO_INDEX")]
    assert (bill["repo"], bill["path"], bill["isDefinition"]) == ("shop-2", "bill.py", True)
    assert [one["exists"] for one in whole["repositories"]] == [True, True, False, False]
    assert {(one["code"], one["repo"]) for one in check["warnings"]} == {
        ("NO_INDEX", "third"),
        ("ROOT_MISSING", "missing"),
    }
    assert [one["repo"] for one in built["failures"]] == ["missing"]


async def test_status_tells_what_has_changed_since(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    async with workspace_client(root) as client:
        await build(client)
        head = git(root, "rev-parse", "HEAD")
        write(root, {"src/users.py": "def other(): ...\n", "new.py": "x = 1\n"})
        (root / "docs/guide.md").unlink()
        status = data_of(await client.call_tool("workspace__index_status", {}))

    assert status["stale"] is True
    assert status["changed"] == {
        "added": 1,
        "modified": 1,
        "deleted": 1,
        "paths": ["src/users.py", "new.py", "docs/guide.md"],
    }
    assert status["git"] == {"head": head, "branch": "main", "dirty": True}
    assert status["indexedGit"] == {"head": head, "branch": "main", "dirty": False}


async def test_served_alone_its_tools_have_bare_names(tmp_path: Path) -> None:
    make_repo(tmp_path)
    command, *arguments = loaded_toolpost("serve", "--stdio", "--only", "workspace")
    server = StdioServerParameters(command=command, args=arguments, env=server_environment(), cwd=str(tmp_path))
    async with Client(server, mode="legacy") as client:
        listed = sorted(tool.name for tool in (await client.list_tools()).tools)
        built = data_of(await client.call_tool("index_build", {}))
        found = data_of(await client.call_tool("search", {"query": "UserStore"}))

    assert listed == TOOLS
    assert built["repositories"][0]["files"] == 3
    assert found["hits"][0]["symbol"] == "UserStore"
