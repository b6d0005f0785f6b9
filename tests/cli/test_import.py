"""`toolpost import`: other clients' servers, found, shown and written into `toolpost.toml`."""

import json
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ended, Run
from tests.settings.resolving import resolve_servers
from toolpost.cli.clients.known import list_client_files
from toolpost.settings import load_config

SECRETS = ("ghp_hunter2", "hunter3", "hunter4", "hunter5", "hunter6")

Import = Callable[..., Ended]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def imported(run: Run, home: Path) -> Import:
    """Run `toolpost import` as somebody with an empty home."""

    def imported(*arguments: str, **environment: str) -> Ended:
        return run("import", *arguments, HOME=str(home), XDG_CONFIG_HOME="", CLAUDE_CONFIG_DIR="", **environment)

    return imported


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def servers_of(path: Path) -> Any:
    return tomllib.loads(path.read_text())["servers"]


@pytest.fixture
def everywhere(tmp_path: Path, home: Path) -> None:
    """Every client has servers, in the project and for the user."""
    write(
        tmp_path / ".mcp.json",
        {
            "mcpServers": {
                "github": {
                    "command": "npx",
                    "args": ["-y", "gh", "--api-key", "hunter3"],
                    "env": {"GITHUB_TOKEN": "ghp_hunter2", "MODE": "fast"},
                },
                "My Api": {"type": "http", "url": "https://x/mcp", "headers": {"Authorization": "Bearer hunter4"}},
            }
        },
    )
    write(tmp_path / ".env", "DATABASE_URL=hunter5\n")
    write(
        tmp_path / ".vscode/mcp.json",
        """{
  // asked for
  "servers": {
    "pg": {"command": "docker", "args": ["-e", "PGPASSWORD=${input:pg-pass}"], "envFile": "${workspaceFolder}/.env"},
  },
}""",
    )
    write(
        tmp_path / ".vscode/settings.json", '{"mcp": {"servers": {"old": {"command": "o", "env": {"A": "${env:B}"}}}}}'
    )
    write(tmp_path / ".cursor/mcp.json", {"mcpServers": {"cur": {"url": "http://c/sse"}}})
    write(
        home / ".claude.json",
        {
            "mcpServers": {"mine": {"type": "sse", "url": "http://m/?token=hunter6"}},
            "projects": {str(tmp_path): {"mcpServers": {"here": {"command": "h"}}}, "/x": {"mcpServers": {"no": {}}}},
        },
    )
    write(home / ".config/Claude/claude_desktop_config.json", {"mcpServers": {"desk": {"command": "d"}}})
    write(
        home / ".cursor/mcp.json",
        {"mcpServers": {"cur": {"url": "http://c/sse"}, "off": {"command": "o", "disabled": True}}},
    )
    write(home / ".config/Code/User/mcp.json", {"servers": {"code": {"command": "c"}}})


@pytest.mark.usefixtures("everywhere")
def test_every_client_is_found_and_written(imported: Import, tmp_path: Path) -> None:
    ended = imported()
    servers = servers_of(tmp_path / "toolpost.toml")

    assert ended.code == 0, ended.err
    assert list(servers) == ["github", "My-Api", "cur", "pg", "old", "mine", "here", "desk", "off", "code"]
    assert servers["github"] == {
        "command": "npx",
        "args": ["-y", "gh", "--api-key", "${GITHUB_API_KEY}"],
        "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "MODE": "fast"},
    }
    assert servers["My-Api"]["headers"] == {"Authorization": "Bearer ${MY_API_TOKEN}"}
    assert servers["pg"] == {
        "command": "docker",
        "args": ["-e", "PGPASSWORD=${PG_PASS}"],
        "env": {"DATABASE_URL": "${DATABASE_URL}"},
    }
    assert servers["old"]["env"] == {"A": "${B}"}
    assert servers["mine"] == {"url": "http://m/?token=${MINE_TOKEN}", "transport": "sse"}
    assert servers["off"]["enabled"] is False
    set_now = dict.fromkeys(
        ("GITHUB_API_KEY", "GITHUB_TOKEN", "MY_API_TOKEN", "PG_PASS", "DATABASE_URL", "B", "MINE_TOKEN"), "x"
    )
    assert len(resolve_servers(load_config(tmp_path / "toolpost.toml"), set_now)) == 9


@pytest.mark.usefixtures("everywhere")
def test_what_was_found_is_shown_without_secrets(imported: Import, run: Run, tmp_path: Path) -> None:
    dry = imported("--dry-run")
    assert not (tmp_path / "toolpost.toml").exists()
    machine = imported("--dry-run", "--json")
    ended = imported(GITHUB_TOKEN="set")
    shown = run("config", "show")
    raw = run("config", "show", "--config", ".mcp.json", "--json")

    everything = "".join(done.out + done.err for done in (dry, machine, ended, shown, raw))
    assert not [secret for secret in SECRETS if secret in everything + (tmp_path / "toolpost.toml").read_text()]
    rows = [line.split() for line in dry.out.splitlines()]
    assert ["github", "stdio", "would", "be", "written", "Claude", "Code,", str(tmp_path / ".mcp.json")] in rows
    assert f"note: GITHUB_API_KEY: set it before Toolpost starts; its value is in {tmp_path / '.mcp.json'}" in ended.err
    assert "note: GITHUB_TOKEN: is set already" in ended.err
    assert "note: PG_PASS: set it before Toolpost starts; used by servers.pg.args[1]" in ended.err
    assert "`My Api` was renamed to `My-Api`" in ended.err
    assert machine.json["written"] is False
    assert {"name": "PG_PASS", "isSet": False, "usedBy": ["servers.pg.args[1]"]} in machine.json["variables"]
    assert 'GITHUB_TOKEN = "${GITHUB_TOKEN}"' in shown.out
    assert raw.json["settings"]["servers"]["github"]["env"] == {"GITHUB_TOKEN": "(redacted)", "MODE": "fast"}


@pytest.mark.usefixtures("everywhere")
def test_second_run_changes_nothing(imported: Import, tmp_path: Path) -> None:
    imported()
    first = (tmp_path / "toolpost.toml").read_bytes()
    again = imported("--json")
    forced = imported("--force", "--json")

    assert (again.code, again.json["written"], forced.json["written"]) == (0, False, False)
    assert {server["outcome"] for server in again.json["servers"]} == {"already there", "left out"}
    assert (tmp_path / "toolpost.toml").read_bytes() == first


def test_rest_of_the_file_is_untouched_and_servers_are_kept(imported: Import, tmp_path: Path) -> None:
    before = '# mine\n[servers.a]  # keep\ncommand = "own"\n\n[limits]\ntimeout_s = 5 # five\n'
    path = write(tmp_path / "toolpost.toml", before)
    path.chmod(0o640)
    write(tmp_path / ".mcp.json", {"mcpServers": {"a": {"command": "theirs"}, "b": {"command": "b"}}})
    ended = imported("--json")

    text = path.read_text()
    assert text.startswith(before)
    assert text[len(before) :] == f'\n# from Claude Code, {tmp_path / ".mcp.json"}\n[servers.b]\ncommand = "b"\n'
    assert [server["outcome"] for server in ended.json["servers"]] == ["already there", "written"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_force_replaces_one_server_and_nothing_else(imported: Import, tmp_path: Path) -> None:
    before = '[servers.a]\ncommand = "own"\n\n[servers.a.env]\nX = "1"\n\n# after\n[limits]\ntimeout_s = 5\n'
    path = write(tmp_path / "toolpost.toml", before)
    write(tmp_path / ".mcp.json", {"mcpServers": {"a": {"command": "theirs"}}})
    ended = imported("--force")

    assert ended.code == 0
    assert tomllib.loads(path.read_text()) == {"servers": {"a": {"command": "theirs"}}, "limits": {"timeout_s": 5}}
    assert path.read_text().startswith("# after\n[limits]\n")
    (backup,) = tmp_path.glob("toolpost.toml.toolpost-backup-*")
    assert backup.read_text() == before


def test_file_that_cannot_be_added_to_is_left_alone(imported: Import, tmp_path: Path) -> None:
    path = write(tmp_path / "toolpost.toml", 'servers = {a = {command = "x"}}\n')
    write(tmp_path / ".mcp.json", {"mcpServers": {"b": {"command": "b"}}})
    ended = imported()

    assert ended.code == 3
    assert "cannot be edited automatically" in ended.err
    assert '[servers.b]\ncommand = "b"' in ended.err
    assert path.read_text() == 'servers = {a = {command = "x"}}\n'


def test_refusal_tells_no_secrets_that_were_to_be_kept(imported: Import, tmp_path: Path) -> None:
    write(tmp_path / "toolpost.toml", 'servers = {a = {command = "x"}}\n')
    write(tmp_path / ".mcp.json", {"mcpServers": {"b": {"command": "b", "env": {"TOKEN": "hunter2"}}}})
    ended = imported("--keep-secrets")

    assert ended.code == 3
    assert "hunter2" not in ended.out + ended.err


@pytest.mark.parametrize("before", ["# x", "# x\n\n\n", "a = 1\r\n"])
def test_end_of_the_file_is_kept_too(before: str, imported: Import, tmp_path: Path) -> None:
    before = before.replace("a = 1", "lock = 'l'")
    (tmp_path / "toolpost.toml").write_bytes(before.encode())
    write(tmp_path / ".mcp.json", {"mcpServers": {"b": {"command": "b"}}})
    imported()

    text = (tmp_path / "toolpost.toml").read_bytes().decode()
    assert text.startswith(before)
    assert list(servers_of(tmp_path / "toolpost.toml")) == ["b"]
    assert ("\r\n" in before) == (text.count("\n") == text.count("\r\n"))


def test_broken_toml_is_named_with_its_line(imported: Import, tmp_path: Path) -> None:
    write(tmp_path / "toolpost.toml", "[http]\nlisten = \n")
    ended = imported()

    assert ended.code == 3
    assert "toolpost.toml is not TOML" in ended.err
    assert "line 2" in ended.err


def test_broken_file_is_told_and_the_others_are_written(imported: Import, tmp_path: Path) -> None:
    write(tmp_path / ".mcp.json", '{\n  "mcpServers": {"a": "hunter2\n}')
    write(tmp_path / ".cursor/mcp.json", {"mcpServers": {"b": {"command": "b"}, "c": {"type": "ws"}}})
    ended = imported()

    assert ended.code == 3
    assert f"warning: {tmp_path / '.mcp.json'} is not JSON: line 2, column 31" in ended.err
    assert "servers.c: `type` must be stdio" in ended.err
    assert "hunter2" not in ended.err + ended.out
    assert list(servers_of(tmp_path / "toolpost.toml")) == ["b"]


def test_same_name_in_two_files_is_taken_once(imported: Import, tmp_path: Path, home: Path) -> None:
    write(tmp_path / ".mcp.json", {"mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}})
    write(home / ".cursor/mcp.json", {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}})
    ended = imported("--json")

    where = f"is in Claude Code, {tmp_path / '.mcp.json'}"
    assert ended.code == 0
    assert [server.get("reason") for server in ended.json["servers"]] == [
        None,
        None,
        f"the same {where}",
        f"another one of this name {where}",
    ]
    assert servers_of(tmp_path / "toolpost.toml")["b"] == {"command": "x"}


def test_two_secrets_of_one_name_get_two_variables(imported: Import, tmp_path: Path) -> None:
    write(
        tmp_path / ".mcp.json",
        {"mcpServers": {name: {"command": "x", "env": {"API_KEY": name * 9}} for name in ("aa", "bb")}},
    )
    imported()

    servers = servers_of(tmp_path / "toolpost.toml")
    assert [server["env"]["API_KEY"] for server in servers.values()] == ["${API_KEY}", "${BB_API_KEY}"]


def test_env_files_of_two_servers_get_variables_of_their_own(imported: Import, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.env", f"URL=http://{name}\n")
    write(
        tmp_path / ".vscode/mcp.json",
        {"servers": {name: {"command": "x", "envFile": f"{name}.env"} for name in ("a", "b")}},
    )
    ended = imported()

    servers = servers_of(tmp_path / "toolpost.toml")
    assert [server["env"] for server in servers.values()] == [{"URL": "${URL}"}, {"URL": "${B_URL}"}]
    assert "note: B_URL: set it before Toolpost starts; its value is in b.env" in ended.err


def test_secrets_are_kept_where_that_is_wanted(imported: Import, tmp_path: Path) -> None:
    write(tmp_path / ".mcp.json", {"mcpServers": {"a": {"command": "x", "env": {"API_KEY": "hunter2"}}}})
    ended = imported("--keep-secrets")

    assert servers_of(tmp_path / "toolpost.toml")["a"]["env"] == {"API_KEY": "hunter2"}
    assert stat.S_IMODE((tmp_path / "toolpost.toml").stat().st_mode) == 0o600
    assert "hunter2" not in ended.out + ended.err


def test_servers_of_another_project_keep_their_folder(imported: Import, tmp_path: Path) -> None:
    other = tmp_path / "other"
    path = write(
        other / ".mcp.json",
        {
            "mcpServers": {
                "a": {"command": "x", "args": ["${workspaceFolder}/y"]},
                "b": {"command": "x", "cwd": "in"},
                "toolpost": {"url": "http://localhost:1/mcp"},
            }
        },
    )
    ended = imported("--from", str(path), "--write", "sub/mine.toml")

    assert servers_of(tmp_path / "sub/mine.toml") == {
        "a": {"command": "x", "args": [f"{other}/y"], "cwd": str(other)},
        "b": {"command": "x", "cwd": f"{other}/in"},
    }
    assert "`toolpost` is Toolpost itself: skipped" in ended.err


@pytest.mark.parametrize(
    ("source", "code", "told"),
    [
        ("curser", 2, "hint: did you mean `cursor`?"),
        ("cursor", 2, "no configuration of Cursor was found"),
        ("package.json", 3, "package.json contains no MCP servers"),
    ],
)
def test_source_that_leads_nowhere_is_an_error(
    source: str, code: int, told: str, imported: Import, tmp_path: Path
) -> None:
    write(tmp_path / "package.json", {"name": "x"})
    ended = imported("--from", source)

    assert ended.code == code
    assert told in ended.err


def test_nothing_to_find_is_no_error(imported: Import, tmp_path: Path) -> None:
    ended = imported()

    assert (ended.code, ended.out) == (0, "no MCP servers found in the files that Claude, Cursor and VS Code use\n")
    assert not (tmp_path / "toolpost.toml").exists()


@pytest.mark.parametrize(
    ("platform", "environment", "desktop"),
    [
        ("linux", {}, "home/.config/Claude/claude_desktop_config.json"),
        ("linux", {"XDG_CONFIG_HOME": "/xdg"}, "/xdg/Claude/claude_desktop_config.json"),
        ("darwin", {}, "home/Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", {"APPDATA": "/roaming"}, "/roaming/Claude/claude_desktop_config.json"),
        ("win32", {}, "home/AppData/Roaming/Claude/claude_desktop_config.json"),
    ],
)
def test_places_on_every_system(
    platform: str,
    environment: dict[str, str],
    desktop: str,
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(home))
    found = {place.path for place in list_client_files(tmp_path, platform=platform, environment=environment)}

    assert tmp_path / desktop in found
    assert {home / ".claude.json", home / ".cursor/mcp.json", tmp_path / ".vscode/settings.json"} <= found
    assert len(found) == 9
    moved = list_client_files(tmp_path, environment={"CLAUDE_CONFIG_DIR": "/cc"})
    assert Path("/cc/.claude.json") in {place.path for place in moved}


@pytest.mark.wire
def test_help_loads_no_configuration() -> None:
    import subprocess
    import sys

    code = "import sys; from toolpost.cli.main import main; main(['--help'], standalone_mode=False); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert "'toolpost.settings'" not in loaded
    assert "msgspec" not in loaded
