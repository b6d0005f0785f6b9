"""`toolpost auth`: set from anywhere but the command line, listed without values, removed, and rotated."""

import json
import os
import pty
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.cli.conftest import TOOLPOST, Run, Server
from tests.credentials.test_caller_credentials import Peer, token_of
from tests.postgres import Postgres
from tests.upstreams.behind import SERVERS
from tests.upstreams.servers.http_server import serving
from tests.upstreams.servers.whoami import WhoamiHttp
from toolpost.credentials.keys import KeyFile
from toolpost.credentials.vault import Vault
from toolpost.store import open_store

pytestmark = pytest.mark.wire
SECRET = "tp-canary-8f3a9c01b2d4"
TOLD = SECRET[::-1]
"""How the server tells it: as it is, the gateway masks it."""
ANOTHER = "tp-canary-2-77aa0c9912ee"
CONFIG = f"""
[servers.up]
command = {json.dumps(sys.executable)}
args = ["-S", "-E", {json.dumps(str(SERVERS / "whoami.py"))}, "--version", "2026-07-28"]
env = {{WHOAMI_KEY = "${{caller:KEY}}"}}
[callers.ann]
token = "${{file:ann}}"
"""


@pytest.fixture(autouse=True)
def _configured(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(CONFIG)
    (tmp_path / "ann").write_text("ann-token-" + "x" * 32)


def test_a_value_is_set_used_listed_and_removed(invoke: Run, tmp_path: Path) -> None:
    assert invoke("auth", "list").out == ""
    without = invoke("call", "up__whoami", "{}")
    assert without.code != 0
    assert "toolpost auth set up KEY" in without.err
    done = invoke("auth", "set", "up", "KEY", stdin=f"{SECRET}\n")
    assert (done.code, done.out) == (0, "")
    assert "KEY of up is set for callers without a name" in done.err
    (tmp_path / "value").write_bytes(ANOTHER.encode() + b"\r\n")
    assert invoke("auth", "set", "up", "KEY", "--caller", "ann", "--file", "value").code == 0

    called = invoke("call", "up__whoami", "{}")
    assert TOLD in called.out
    listed = invoke("auth", "list", "--json")
    assert [(one["caller"], one["key"], one["isReadable"]) for one in listed.json["credentials"]] == [
        (None, "KEY", True),
        ("ann", "KEY", True),
    ]
    assert listed.json["keyPlace"].endswith("credentials.key")
    shown = invoke("auth", "list")
    assert shown.out.splitlines()[2].split()[:3] == ["up", "ann", "KEY"]
    for text in (listed.out, shown.out, done.err):
        assert "canary" not in text
    key_file = tmp_path / ".toolpost" / "credentials.key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600

    assert invoke("auth", "remove", "up", "KEY", "--caller", "ann").code == 0
    assert invoke("auth", "remove", "up", "KEY", "--caller", "ann").code == 2
    assert invoke("auth", "remove", "up").code == 0
    assert invoke("auth", "list", "--json").json["credentials"] == []


def test_a_person_is_asked_and_what_they_type_is_not_shown(tmp_path: Path, environment: dict[str, str]) -> None:
    ours, its = pty.openpty()
    command = [TOOLPOST, "auth", "set", "up", "KEY"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=its, stdout=its, stderr=its) as process:
        os.close(its)
        shown = b""
        while b"KEY of up: " not in shown:
            shown += os.read(ours, 1024)
        while termios.tcgetattr(ours)[3] & termios.ECHO:  # it turns the echo off after it has asked
            time.sleep(0.01)
        os.write(ours, f"{SECRET}\n".encode())
        try:
            while chunk := os.read(ours, 1024):
                shown += chunk
        except OSError:
            pass
        assert process.wait(30) == 0
    os.close(ours)
    assert b"canary" not in shown


def test_a_value_cannot_be_given_on_the_command_line(invoke: Run) -> None:
    refused = invoke("auth", "set", "up", "KEY", SECRET)
    assert refused.code == 2
    assert invoke("auth", "list", "--json").json["credentials"] == []


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        (("upp", "KEY"), "x", "did you mean `up`?"),
        (("up", "KEY", "--caller", "an"), "x", "did you mean `ann`?"),
        (("up", "KEY", "--caller", "local"), "x", "callers without a name"),
        (("up", "a b"), "x", "a key has letters"),
        (("up", "oauth"), "x", "`oauth` is where logins are kept"),
        (("up", "KEY"), "\n", "the value is empty"),
        (("up", "KEY"), "x" * 70_000, "longer than"),
    ],
)
def test_what_cannot_be_meant_is_refused(invoke: Run, arguments: tuple[str, ...], stdin: str, says: str) -> None:
    refused = invoke("auth", "set", *arguments, stdin=stdin)
    assert refused.code in (2, 3)
    assert says in refused.err
    assert invoke("auth", "list", "--json").json["credentials"] == []


def test_other_programs_are_told_what_was_done(invoke: Run) -> None:
    done = invoke("auth", "set", "up", "KEY", "--json", stdin=SECRET)
    assert (done.code, done.json) == (0, {"server": "up", "caller": None, "key": "KEY"})
    assert invoke("auth", "key", "--rotate", "--json").json["credentials"] == 1
    assert invoke("auth", "remove", "up", "--json").json == {"server": "up", "caller": None, "removed": 1}
    assert "canary" not in done.out + done.err


def test_a_key_that_no_setting_refers_to_is_named(invoke: Run) -> None:
    done = invoke("auth", "set", "up", "KEE", stdin="x")
    assert done.code == 0
    assert "refers to ${caller:KEE} yet; did you mean KEY?" in done.err


def test_the_key_is_rotated(invoke: Run, tmp_path: Path) -> None:
    invoke("auth", "set", "up", "KEY", stdin=SECRET)
    path = tmp_path / ".toolpost" / "credentials.key"
    old = path.read_text().split()
    rotated = invoke("auth", "key", "--rotate")
    assert (rotated.code, "One credential is encrypted" in rotated.err) == (0, True)
    assert path.read_text().split()[1:] == old
    assert TOLD in invoke("call", "up__whoami", "{}").out


def test_a_variable_has_the_key(invoke: Run, tmp_path: Path) -> None:
    old, new = (invoke("auth", "key", "--new").out.strip() for _ in range(2))
    assert old != new
    invoke("auth", "set", "up", "KEY", stdin=SECRET, TOOLPOST_CREDENTIALS_KEY=old)
    assert not (tmp_path / ".toolpost" / "credentials.key").exists()
    refused = invoke("auth", "key", "--rotate", TOOLPOST_CREDENTIALS_KEY=old)
    assert refused.code == 3
    assert "put a new key and a space before the old one" in refused.err
    assert invoke("auth", "key", "--rotate", TOOLPOST_CREDENTIALS_KEY=f"{new} {old}").code == 0
    assert TOLD in invoke("call", "up__whoami", "{}", TOOLPOST_CREDENTIALS_KEY=new).out
    (one,) = invoke("auth", "list", "--json", TOOLPOST_CREDENTIALS_KEY=old).json["credentials"]
    assert one["isReadable"] is False
    lost = invoke("call", "up__whoami", "{}", TOOLPOST_CREDENTIALS_KEY=old)
    assert lost.code != 0
    assert "cannot be decrypted" in lost.err


def test_doctor_checks_key_and_values(invoke: Run, tmp_path: Path) -> None:
    def findings(**environment: str) -> list[tuple[str, str]]:
        groups = invoke("doctor", "--json", **environment).json["groups"]
        return [
            (found["level"], found["message"])
            for group in groups
            for found in group["findings"]
            if found["check"] in ("credentials", "start")
        ]

    ((level, message),) = findings()
    assert level == "warning"
    assert message.startswith("not started: the server `up` needs KEY")
    invoke("auth", "set", "up", "KEY", stdin=SECRET)

    async def begin_login() -> None:
        async with open_store(f"sqlite:{tmp_path / '.toolpost' / 'toolpost.db'}") as store:
            vault = Vault(store, KeyFile(tmp_path / ".toolpost" / "credentials.key"))
            await vault.put("up", "", "login 00", b"begun, and not completed")

    anyio.run(begin_login)
    assert next((level, message.partition(",")[0]) for level, message in findings()) == ("ok", "1 credential")
    (tmp_path / ".toolpost" / "credentials.key").chmod(0o644)
    assert any("can be read by other users" in message for _, message in findings())
    (tmp_path / ".toolpost" / "credentials.key").chmod(0o600)
    found = findings(TOOLPOST_CREDENTIALS_KEY=invoke("auth", "key", "--new").out.strip())
    assert ("problem", True) in [(level, "cannot be decrypted" in message) for level, message in found]


def test_tools_are_locked_with_the_credentials_of_the_operator(invoke: Run, tmp_path: Path) -> None:
    invoke("auth", "set", "up", "KEY", stdin=SECRET)
    assert invoke("lock").code == 0
    assert "up__whoami" in (tmp_path / "toolpost.lock").read_text()
    assert "canary" not in (tmp_path / "toolpost.lock").read_text()
    assert invoke("check").code == 0


def test_a_caller_is_listed_the_tools_of_its_account(invoke: Run) -> None:
    invoke("auth", "set", "up", "KEY", "--caller", "ann", stdin="ann-vip")
    invoke("auth", "set", "up", "KEY", stdin="operator")
    listed = {
        caller: [tool["name"] for tool in invoke("tools", "--json", *option).json]
        for caller, option in (("ann", ("--caller", "ann")), ("operator", ()))
    }
    assert "up__only_ann-vip" in listed["ann"]
    assert "up__whoami" in listed["operator"]
    assert "up__only_ann-vip" not in listed["operator"]


def test_credentials_move_with_the_store(invoke: Run, tmp_path: Path, postgres: Postgres) -> None:
    invoke("auth", "set", "up", "KEY", stdin=SECRET)
    target = postgres.new_url()
    moved = invoke("store", "migrate", "--to", target, "--json")
    assert moved.json["rows"]["credentials"] == 2  # with the check of the key
    (tmp_path / "toolpost.toml").write_text(f"[store]\nurl = {json.dumps(target)}\n{CONFIG}")
    # The file beside the old store is where that of a project on PostgreSQL is, too.
    assert TOLD in invoke("call", "up__whoami", "{}").out


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_value_is_nowhere_to_be_read(
    kind: str, serve: Callable[..., Server], invoke: Run, run: Run, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Neither in the database, nor in logs, audit, errors, `--json` output, or process lists: but in the server's answer."""
    (tmp_path / "bob").write_text(token_of("bob"))
    async with serving(web := WhoamiHttp()) as url:
        postgres: Postgres | None = request.getfixturevalue("postgres") if kind == "postgres" else None
        target = postgres.new_url() if postgres is not None else "sqlite:.toolpost/toolpost.db"
        more = f'[callers.bob]\ntoken = "${{file:bob}}"\nadmin = true\n[servers.web]\nurl = "{url}"\n'
        more += 'headers = {x-key = "${caller:KEY}"}\n'
        (tmp_path / "toolpost.toml").write_text(f"[store]\nurl = {json.dumps(target)}\n{CONFIG}{more}")
        gateway = serve("--log-level", "debug")
        peer, admin = Peer(gateway.url, "ann"), Peer(gateway.url, "bob")
        seen: list[str] = []
        # The gateway runs: it uses what is set from now on.
        assert (await peer.call("up__whoami")).get("error")
        for server in ("up", "web"):
            setting = partial(invoke, "auth", "set", server, "KEY", "--caller", "ann", stdin=SECRET)
            done = await to_thread.run_sync(setting)
            seen += [done.out, done.err]
        with anyio.fail_after(20):
            while "up__whoami" not in (listed := await peer.tools()) or "web__whoami" not in listed:
                await anyio.sleep(0.05)
        assert await peer.text("up__whoami") == await peer.text("web__whoami") == TOLD
        shown = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        assert "whoami.py" in shown
        seen.append(shown)
        # A server that prints its credential where it fails, to its stderr or in an HTTP error.
        for who in (peer, admin):
            for tool in ("up__leak", "web__leak"):
                seen.append(json.dumps(await who.call(tool)))
        seen.append(json.dumps(await peer.tools()))
        commands = [("servers", "--json", "--url", gateway.url), ("auth", "list", "--json"), ("audit", "--json")]
        if postgres is None:
            commands += [("store", "status", "--json"), ("config", "show", "--json"), ("doctor", "--json")]
        for command in commands:
            ended = await to_thread.run_sync(
                partial(run if command[0] == "doctor" else invoke, *command, TOOLPOST_TOKEN=token_of("bob"))
            )
            assert ended.out, (command, ended.err)
            seen += [ended.out, ended.err]
        peer.close()
        admin.close()
        ended = gateway.end()
        seen += [ended.out, ended.err]
        assert web.mixed == []
    assert "server ready" in ended.err
    assert "cannot use the key (redacted)" in "".join(seen)
    for text in seen:
        assert SECRET not in text, text[max(0, text.index(SECRET) - 300) :][:600]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    if kind == "sqlite":
        assert [path.name for path in files if path.name == "toolpost.db"]
    assert [str(path) for path in files if SECRET.encode() in path.read_bytes()] == []
    if postgres is not None:
        rows = postgres.sql(target, "SELECT convert_from(value, 'UTF8') FROM credentials")
        assert rows
        assert SECRET not in rows
        assert SECRET not in postgres.sql(
            target, "SELECT * FROM audit", "SELECT * FROM known_tools", "SELECT * FROM pins"
        )
