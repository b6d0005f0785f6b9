"""The files of other clients, each as that client writes it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.settings.resolving import resolve_servers
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings import Config, load_config
from toolpost.settings.client_files import read_client_file


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


def written(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def read(path: Path, folder: Path) -> Config:
    return load_config(path, folder=folder)


def test_claude_code_project(tmp_path: Path) -> None:
    path = written(
        tmp_path / "p/.mcp.json",
        {
            "mcpServers": {
                "db": {"type": "stdio", "command": "npx", "args": ["-y", "db"], "env": {"URL": "${URL:-x}"}},
                "api": {"type": "http", "url": "${BASE}/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
            }
        },
    )
    servers = resolve_servers(read(path, tmp_path), {"BASE": "https://x", "KEY": "k"})

    assert (servers["db"].command, servers["db"].env) == (("npx", "-y", "db"), {"URL": "x"})
    assert servers["db"].cwd == tmp_path / "p"
    assert (servers["api"].url, servers["api"].transport) == ("https://x/mcp", "http")
    assert servers["api"].headers == {"Authorization": "Bearer k"}


def test_claude_code_user_file_has_servers_for_all_and_for_folders(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work" / "deep"
    path = written(
        home / ".claude.json",
        {
            "numStartups": 3,
            "mcpServers": {"all": {"command": "a"}, "both": {"command": "user"}},
            "projects": {
                str(tmp_path / "work"): {"mcpServers": {"both": {"command": "folder"}}, "history": []},
                str(tmp_path / "other"): {"mcpServers": {"no": {"command": "no"}}},
            },
        },
    )
    servers = resolve_servers(read(path, folder), {})

    assert {name: server.command for name, server in servers.items()} == {"all": ("a",), "both": ("folder",)}
    assert servers["all"].cwd == folder


def test_claude_desktop(home: Path, tmp_path: Path) -> None:
    path = written(
        home / ".config/Claude/claude_desktop_config.json",
        {"globalShortcut": "", "mcpServers": {"files": {"command": "npx", "args": ["fs", "/tmp"]}}},
    )

    assert resolve_servers(read(path, tmp_path), {})["files"].command == ("npx", "fs", "/tmp")


@pytest.mark.parametrize("is_project", [True, False])
def test_cursor(is_project: bool, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    path = written(
        (folder if is_project else home) / ".cursor/mcp.json",
        {
            "mcpServers": {
                "url": {"url": "http://localhost:3000/sse", "headers": {"X": "${env:X}"}},
                "cmd": {"command": "x", "cwd": "${workspaceFolder}/sub"},
            }
        },
    )
    servers = resolve_servers(read(path, folder), {"X": "1"})

    assert (servers["url"].transport, servers["url"].headers) == (None, {"X": "1"})
    assert servers["cmd"].cwd == folder / "sub"


def test_vscode_with_comments_trailing_commas_and_an_env_file(tmp_path: Path) -> None:
    written(
        tmp_path / "p/.env",
        "# comment\nexport TOKEN='s p'\nURL=http://x/#y # remark\nRAW=${NOT_EXPANDED}\nOWN=file\nbroken line\n",
    )
    path = written(
        tmp_path / "p/.vscode/mcp.json",
        """\ufeff{
  /* what is asked for */
  "inputs": [{"id": "key", "type": "promptString"}],
  "servers": {
    "one": {
      "type": "stdio", // a remark
      "command": "x", "args": ["http://not//a/comment", "a,]",],
      "env": {"OWN": "here", "N": 8080, "B": true, "GONE": null},
      "envFile": "${workspaceFolder}/.env",
      "dev": {"watch": "*"},
    },
    "two": {"type": "http", "url": "http://localhost:1/mcp"},
  },
}
""",
    )
    config = read(path, tmp_path)
    servers = resolve_servers(config, {})

    assert servers["one"].command == ("x", "http://not//a/comment", "a,]")
    assert servers["one"].env == {
        "TOKEN": "s p",
        "URL": "http://x/#y",
        "RAW": "${NOT_EXPANDED}",
        "OWN": "here",
        "N": "8080",
        "B": "true",
    }
    assert servers["two"].transport is None, "VS Code falls back to SSE, and so do we"
    assert read_client_file(path, folder=tmp_path).notes == ("servers.one: ignored: dev",)


def test_vscode_settings(tmp_path: Path) -> None:
    path = written(
        tmp_path / ".vscode/settings.json",
        '{"editor.fontSize": 12, // big\n "mcp": {"servers": {"a": {"command": "x"}}}}',
    )

    assert list(read(path, tmp_path).servers) == ["a"]


@pytest.mark.parametrize("kind", ["http", "streamable-http", "streamableHttp"])
def test_every_spelling_of_http(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.json", {"mcpServers": {"a": {"type": kind, "url": "http://x/mcp"}}})

    assert read(path, tmp_path).servers["a"].transport == "http"


def test_disabled_servers_are_kept_and_may_be_broken(tmp_path: Path) -> None:
    path = written(
        tmp_path / "x.json",
        {"mcpServers": {"a": {"command": "${NO}", "disabled": True}, "b": {"disabled": True, "envFile": "no"}}},
    )
    config = read(path, tmp_path)

    assert config.servers["a"].enabled is False
    assert resolve_servers(config, {}) == {}


def test_names_become_usable_and_no_two_are_the_same(tmp_path: Path) -> None:
    names = ["My Server", "@scope/pkg", "a__b", "café", "My-Server", "日本", "my.server/x"]
    path = written(tmp_path / "x.json", {"mcpServers": {name: {"command": "x"} for name in names}})
    found = read_client_file(path, folder=tmp_path)

    assert [server.name for server in found.servers] == [
        "My-Server-2",
        "scope-pkg",
        "a_b",
        "cafe",
        "My-Server",
        "server",
        "my-server-x",
    ]
    told = [note for note in found.notes if "`My Server`" in note]
    assert told == [
        "servers.My-Server-2: `My Server` was renamed to `My-Server-2`: names are letters, digits, `-` and single `_`"
    ]


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "/x/bin/toolpost", "args": ["serve", "--stdio"]},
        {"command": "C:\\x\\toolpost.exe", "args": ["serve"]},
        {"command": "uvx", "args": ["toolpost@latest", "serve", "--stdio"]},
        {"url": "http://127.0.0.1:8420/mcp"},
        {"url": "http://localhost:9/mcp"},
    ],
)
def test_toolpost_is_not_put_behind_itself(entry: dict[str, Any], tmp_path: Path) -> None:
    path = written(tmp_path / ".mcp.json", {"mcpServers": {"toolpost": entry, "other": {"command": "x"}}})

    assert list(read(path, tmp_path).servers) == ["other"]
    assert read_client_file(path, folder=tmp_path).notes == ("`toolpost` is Toolpost itself: skipped",)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (3, "it is not an object"),
        ({}, "has neither `command` nor `url`"),
        ({"command": ["x"]}, "`command` is not text"),
        ({"command": "x", "args": "y"}, "`args` is not a list"),
        ({"command": "x", "env": ["A=b"]}, "`env` is not an object"),
        ({"type": "ws", "url": "ws://x"}, "`type` must be stdio"),
        ({"url": "x"}, "url is not a valid HTTP URL"),
        ({"command": "x", "url": "http://x"}, "has both"),
        ({"command": "\ud800"}, "not valid Unicode"),
    ],
)
def test_server_that_cannot_be_used_is_named(entry: Any, message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.json", {"mcpServers": {"odd": entry}})
    with pytest.raises(BadConfiguration) as refused:
        read(path, tmp_path)

    assert refused.value.message.startswith(f"{path}: servers.odd: ")
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n "mcpServers": {\n  "a": {"command" "hunter2"}\n }\n}', "line 3, column 19"),
        ('{\n "mcpServers": {', "line 2, column 17"),
        ('{\n /* never ends\n "servers": {}}', "line 2, column 2: this comment does not end"),
        ('{"mcpServers": {}} x', "line 1, column 20"),
        ("[" * 100_000, "line 1"),
        ("[]", "it is not a JSON object"),
        ("{}", "contains no MCP servers"),
        ("", "contains no MCP servers"),
        ('{"mcpServers": []}', "`mcpServers` is not an object"),
    ],
)
def test_broken_file_is_refused_with_the_line(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.json", text)
    with pytest.raises(BadConfiguration) as refused:
        read(path, tmp_path)

    assert str(path) in refused.value.message
    assert message in refused.value.message
    assert "hunter2" not in refused.value.message


def test_json_is_known_by_its_content_too(tmp_path: Path) -> None:
    path = written(tmp_path / "servers", '// mine\n{"mcpServers": {"a": {"command": "x"}}}')

    assert list(read(path, tmp_path).servers) == ["a"]


def test_missing_env_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "x.json", {"servers": {"a": {"command": "x", "envFile": "none.env"}}})

    with pytest.raises(BadConfiguration, match=r"servers\.a\.envFile: cannot read .*none\.env"):
        read(path, tmp_path)
