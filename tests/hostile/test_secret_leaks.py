"""Secrets of servers in arguments and addresses: no command shows them, whatever goes wrong, in whatever words."""

# ruff: noqa: F811 - fixtures are imported, and named by the tests that use them

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run, environment, invoke  # noqa: F401 - fixtures
from tests.hostile.attacks import attack

pytestmark = pytest.mark.wire

SECRETS = {
    "--key": "kappa-first-0001",
    "--key=": "kappa-second-0002",
    "-k": "kappa-third-0003",
    "--pat": "kappa-fourth-0004",
    "?key=": "kappa-fifth-0005",
    "path": "3f9a2b7c1d4e5f60718293a4b5c6",
    "user": "hunter-sixth-0006",
}
ADDRESS = f"http://ada:{SECRETS['user']}@127.0.0.1:9/s/{SECRETS['path']}/mcp?key={SECRETS['?key=']}"
SERVER = """
import sys
print("started with", sys.argv, file=sys.stderr, flush=True)
print("not JSON, but words:", sys.argv, flush=True)
sys.stdin.readline()
sys.exit("could not use " + " ".join(sys.argv))
"""
WORDS = (
    "config show",
    "config show --json",
    "servers --json",
    "servers",
    "doctor",
    "doctor --json",
    "tools",
    "call noisy__x",
    "call far__x",
    "check",
    "tools --find x",
)


@pytest.mark.parametrize(
    "debug", [pytest.param(False, marks=pytest.mark.soak, id="plain"), pytest.param(True, id="debug")]
)
@attack(
    "server",
    "prints the secrets that it was given as `--key`, `-k`, `--pat`, in its address's path, user or query, and fails",
    "no command shows them: not in settings, lists, errors and last words, nor in the log and the tracebacks of `--debug`",
)
def test_no_command_shows_the_secrets_of_a_server(debug: bool, invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    args = ["-S", "server.py", "--key", SECRETS["--key"], f"--key={SECRETS['--key=']}", "-k", SECRETS["-k"]]
    args += ["--pat", SECRETS["--pat"], ADDRESS]
    (tmp_path / "toolpost.toml").write_text(
        f'[servers.noisy]\ncommand = "{sys.executable}"\nargs = {args}\n[servers.far]\nurl = "{ADDRESS}"\n'
    )
    shown = {words: invoke(*(["--debug"] if debug else []), *words.split()) for words in WORDS}

    for words, ended in shown.items():
        leaked = [kind for kind, secret in SECRETS.items() if secret in ended.out + ended.err]
        assert leaked == [], (words, ended.out + ended.err)
    assert "(redacted)" in shown["config show"].out
    assert "noisy" in shown["doctor"].out


def test_no_command_shows_the_secrets_of_other_addresses(invoke: Run, tmp_path: Path) -> None:
    keyed = f"http://127.0.0.1:9/v1?key={SECRETS['?key=']}"
    address = keyed.replace("//", f"//ada:{SECRETS['user']}@")
    (tmp_path / "toolpost.toml").write_text(
        f'[export.hook]\nkind = "otlp"\nurl = "{keyed}"\n[export.keyed]\nkind = "otlp"\nurl = "{keyed}"\n'
        f'headers = {{X-Key = "{SECRETS["--key"]}"}}\n[telemetry]\nendpoint = "{address}"\n'
        f'[models.small]\nurl = "{address}"\n'
    )
    shown = {words: invoke(*words.split()) for words in ("config show", "doctor", "--debug doctor", "tools", "check")}

    for words, ended in shown.items():
        leaked = [kind for kind, secret in SECRETS.items() if secret in ended.out + ended.err]
        assert leaked == [], (words, ended.out + ended.err)
    for name in ("hook", "keyed", "small", "telemetry"):
        assert name in shown["doctor"].out
