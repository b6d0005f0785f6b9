"""`toolpost install` and `uninstall`: other people's files, changed with care and changed back."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import TOOLPOST, Ended, Run

Toolpost = Callable[..., Ended]

PLACES = [
    ("claude-code", "--project", ".mcp.json", "mcpServers"),
    ("claude-code", "--user", "home/.claude.json", "mcpServers"),
    ("claude-desktop", "--user", "home/.config/Claude/claude_desktop_config.json", "mcpServers"),
    ("cursor", "--project", ".cursor/mcp.json", "mcpServers"),
    ("cursor", "--user", "home/.cursor/mcp.json", "mcpServers"),
    ("vscode", "--project", ".vscode/mcp.json", "servers"),
    ("vscode", "--user", "home/.config/Code/User/mcp.json", "servers"),
]

OTHERS = """{
\t// do not lose me
\t"KEY": {
\t\t"other": {"command": "x", "env": {"TOKEN": "hunter2"}} // nor me
\t},
\t"z": [1,2],
}
"""


@pytest.fixture
def toolpost(run: Run, tmp_path: Path) -> Toolpost:
    """Run `toolpost` as somebody with an empty home."""
    home = tmp_path / "home"
    home.mkdir()

    def toolpost(*arguments: str, **environment: str) -> Ended:
        empty = {"HOME": str(home), "XDG_CONFIG_HOME": "", "CLAUDE_CONFIG_DIR": ""}
        return run(*arguments, **empty, **environment)

    return toolpost


@pytest.fixture
def here(invoke: Run, tmp_path: Path) -> Toolpost:
    """The same inside this process."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)

    def here(*arguments: str, **environment: str) -> Ended:
        empty = {"HOME": str(home), "XDG_CONFIG_HOME": "", "CLAUDE_CONFIG_DIR": ""}
        return invoke(*arguments, **empty, **environment)

    return here


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.parametrize(("client", "scope", "file", "key"), PLACES)
def test_new_file_is_made_and_goes_again(
    client: str, scope: str, file: str, key: str, here: Toolpost, tmp_path: Path
) -> None:
    ended = here("install", client, scope)
    entry = read(tmp_path / file)[key]["toolpost"]
    again = here("install", client, scope)
    out = here("install", "--remove", client, scope)

    assert (ended.code, again.code, out.code) == (0, 0, 0), ended.err
    assert (entry["command"], entry["args"]) == (TOOLPOST, ["serve", "--stdio"])
    assert entry.get("type", "stdio") == "stdio"
    assert "nothing changed" in again.out
    assert not (tmp_path / file).exists()
    assert here("install", "--remove", client, scope).out.endswith("nothing changed\n")


@pytest.mark.parametrize(("client", "scope", "file", "key"), PLACES)
@pytest.mark.parametrize("text", [OTHERS, "{}", '{"a":1}\n', OTHERS.replace("\n", "\r\n"), ""])
def test_file_of_others_is_kept_and_restored_byte_for_byte(
    client: str, scope: str, file: str, key: str, text: str, here: Toolpost, tmp_path: Path
) -> None:
    before = text.replace("KEY", key).encode()
    path = write(tmp_path / file, before.decode())
    path.chmod(0o600)
    ended = here("install", client, scope)
    between = path.read_bytes()
    again = here("install", client, scope, "--json")
    (backup,) = path.parent.glob(f"{path.name}.toolpost-backup-*")

    assert ended.code == 0, ended.err
    assert b"toolpost" in between
    assert ("do not lose me" in text) == (b"do not lose me" in between)
    assert (again.json["change"], again.json["backup"]) == ("none", None)
    assert backup.read_bytes() == before
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, backup)] == [0o600, 0o600]
    out = here("install", "--remove", client, scope)
    assert path.read_bytes() == before
    assert "hunter2" not in ended.out + ended.err + out.out + out.err


def test_real_command_installs_and_uninstalls(toolpost: Toolpost, tmp_path: Path) -> None:
    write(tmp_path / "toolpost.toml", "")
    before = OTHERS.replace("KEY", "servers")
    path = write(tmp_path / ".vscode/mcp.json", before)
    ended = toolpost("install", "vscode")
    text = path.read_text()
    out = toolpost("install", "--remove", "vscode")

    assert ended.code == 0, ended.err
    assert f'"{tmp_path / "toolpost.toml"}"' in text
    assert f"backup: {path}.toolpost-backup-" in ended.out
    assert (out.code, path.read_text()) == (0, before)


def test_only_our_entry_goes_when_the_file_has_changed(here: Toolpost, tmp_path: Path) -> None:
    path = write(tmp_path / ".mcp.json", '{"mcpServers": {"a": {"command": "x"}}}')
    here("install", "claude-code")
    write(path, path.read_text().replace('"x"', '"changed"'))
    ended = here("install", "--remove", "claude-code", "--json")

    assert path.read_text() == '{"mcpServers": {"a": {"command": "changed"}}}'
    assert ended.json["change"] == "removed"
    assert '"toolpost"' in Path(ended.json["backup"]).read_text()


def test_entry_of_ours_is_brought_up_to_date(here: Toolpost, tmp_path: Path) -> None:
    path = write(
        tmp_path / ".mcp.json", '{"mcpServers": {"toolpost": {"command": "/old/toolpost", "args": ["serve"]}, "b": {}}}'
    )
    ended = here("install", "claude-code", "--json")

    assert ended.json["change"] == "updated"
    assert read(path)["mcpServers"]["toolpost"]["command"] == TOOLPOST
    assert list(read(path)["mcpServers"]) == ["toolpost", "b"]


def test_server_of_somebody_else_is_not_touched(here: Toolpost, tmp_path: Path) -> None:
    text = '{"mcpServers": {"toolpost": {"command": "other"}}}'
    path = write(tmp_path / ".mcp.json", text)
    into, out = here("install", "claude-code"), here("install", "--remove", "claude-code")

    assert (into.code, out.code) == (3, 3)
    assert "has a server `toolpost` that is not Toolpost" in into.err
    assert "--name" in into.err
    assert path.read_text() == text
    assert here("install", "claude-code", "--name", "gateway").code == 0
    assert list(read(path)["mcpServers"]) == ["toolpost", "gateway"]
    assert here("install", "claude-code", "--force").code == 0
    assert read(path)["mcpServers"]["toolpost"]["command"] == TOOLPOST


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{\n  "mcpServers": {"a": }\n}', "is not JSON: line 2, column 23"),
        ("[]", "it is not an object"),
        ('{"mcpServers": []}', "`mcpServers` is not an object"),
    ],
)
def test_file_that_cannot_be_read_is_refused_with_what_to_paste(
    text: str, told: str, here: Toolpost, tmp_path: Path
) -> None:
    path = write(tmp_path / ".mcp.json", text)
    into, out = here("install", "claude-code"), here("install", "--remove", "claude-code")

    assert (into.code, out.code) == (3, 3)
    assert told in into.err
    assert told in out.err
    assert '"command": ' in into.err
    assert [found.name for found in tmp_path.iterdir() if found.is_file()] == [".mcp.json"]
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("client", "file", "key", "reference"),
    [
        ("claude-code", ".mcp.json", "mcpServers", "${TOOLPOST_TOKEN}"),
        ("cursor", ".cursor/mcp.json", "mcpServers", "${env:TOOLPOST_TOKEN}"),
        ("vscode", ".vscode/mcp.json", "servers", "${env:TOOLPOST_TOKEN}"),
    ],
)
def test_http_writes_the_address_and_never_the_token(
    client: str, file: str, key: str, reference: str, here: Toolpost, tmp_path: Path
) -> None:
    write(tmp_path / "toolpost.toml", '[http]\nlisten = "0.0.0.0:9000"\n')
    ended = here("install", client, "--http", TOOLPOST_TOKEN="hunter2")
    entry = read(tmp_path / file)[key]["toolpost"]

    assert entry["url"] == "http://127.0.0.1:9000/mcp"
    assert entry["headers"] == {"Authorization": f"Bearer {reference}"}
    assert "hunter2" not in ended.out + ended.err + (tmp_path / file).read_text()
    assert "needs TOOLPOST_TOKEN in its environment" in ended.err
    assert here("install", "--remove", client).code == 0
    assert not (tmp_path / file).exists()


def test_http_entry_of_an_address_elsewhere_is_known_again(here: Toolpost, tmp_path: Path) -> None:
    write(tmp_path / "toolpost.toml", '[http]\nlisten = "10.0.0.5:9000"\n')
    here("install", "claude-code", "--http")

    assert here("install", "--remove", "claude-code").code == 0
    assert not (tmp_path / ".mcp.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["claude-desktop", "--http"], 2, "--http is not supported: Claude Desktop"),
        (["claude-desktop", "--project"], 2, "--project is not supported: Claude Desktop"),
        (["cursor", "--name", "a b"], 2, "as in `a-b`"),
        (["emacs"], 2, "emacs"),
        (["cursor", "--config", "none.toml"], 3, "configuration file not found"),
        (["cursor", "--http", "--config", "free.toml"], 3, "has port 0"),
    ],
)
def test_what_does_not_go_together_is_refused(
    arguments: list[str], code: int, told: str, here: Toolpost, tmp_path: Path
) -> None:
    write(tmp_path / "free.toml", '[http]\nlisten = "127.0.0.1:0"\n')
    ended = here("install", *arguments)

    assert ended.code == code
    assert told in ended.err
    assert not (tmp_path / ".cursor").exists()


def test_dry_run_shows_our_entry_alone_and_writes_nothing(here: Toolpost, tmp_path: Path) -> None:
    before = OTHERS.replace("KEY", "mcpServers")
    path = write(tmp_path / ".mcp.json", before)
    ended = here("install", "claude-code", "--dry-run")

    assert ended.code == 0
    assert TOOLPOST in ended.out
    assert "hunter2" not in ended.out
    assert (path.read_text(), list(tmp_path.glob("*backup*"))) == (before, [])
    here("install", "claude-code")
    installed = path.read_text()
    assert "would remove `toolpost`" in here("install", "--remove", "claude-code", "--dry-run").out
    assert path.read_text() == installed


def test_link_stays_a_link(here: Toolpost, tmp_path: Path) -> None:
    real = write(tmp_path / "dotfiles/mcp.json", "{}")
    (tmp_path / ".mcp.json").symlink_to(real)
    here("install", "claude-code")

    assert (tmp_path / ".mcp.json").is_symlink()
    assert "toolpost" in real.read_text()
    here("install", "--remove", "claude-code")
    assert (real.read_text(), (tmp_path / ".mcp.json").is_symlink()) == ("{}", True)


def test_home_may_be_the_project(invoke: Run, tmp_path: Path) -> None:
    ended = invoke("install", "cursor", "--user", HOME=str(tmp_path))

    assert ended.code == 0
    assert (tmp_path / ".cursor/mcp.json").exists()
    assert [name["outcome"] for name in invoke("import", "--json", HOME=str(tmp_path)).json["servers"]] == []


def test_what_was_installed_is_not_imported(here: Toolpost) -> None:
    here("install", "claude-code")
    here("install", "cursor", "--http")
    ended = here("import", "--json")

    assert (ended.code, ended.json["servers"]) == (0, [])


def test_servers_that_would_be_seen_twice_are_named(here: Toolpost, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('[servers.clock]\ncommand = "x"\n[servers.git]\ncommand = "y"\n')
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"clock": {"command": "x"}, "maps": {"command": "z"}}}')

    first = here("install", "claude-code")
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"maps": {"command": "z"}}}')
    second = here("install", "claude-code")

    assert "the file also has `clock`" in first.err
    assert "the file also has" not in second.err
