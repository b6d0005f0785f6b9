"""`toolpost serve` prints the console's address at a terminal, and `toolpost console` makes another."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.browser.conftest import open_console
from tests.cli.conftest import TOOLPOST, open_process
from tests.cli.terminal import open_terminal
from tests.hostile.attacks import attack
from tests.loaded import loaded_toolpost

pytestmark = pytest.mark.wire

API = "/api/console"


def console(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = loaded_toolpost("console", *options)
    given = os.environ | environment
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=60, check=False)


def log_in(address: str, **headers: str) -> int:
    """Do what the page does with the secret in its address."""
    url, secret = address.split("/#secret=")
    answer = httpx2.post(f"{url}{API}/session", json={"secret": secret}, headers={"X-Toolpost": "1"} | headers)
    return answer.status_code


BROWSER = """
import re, sys, urllib.request
from pathlib import Path

(url,) = sys.argv[1:]
file = Path(url.removeprefix("file://"))
Path("opened").write_text(f"{url}\\n{file.stat().st_mode & 0o777:o}\\n{file.read_text()}")
address = re.search('url=(.*?)"', file.read_text())[1]
url, secret = address.split("/#secret=")
body = b'{"secret": "%b"}' % secret.encode()
headers = {"X-Toolpost": "1", "Content-Type": "application/json"}
urllib.request.urlopen(urllib.request.Request(f"{url}/api/console/session", body, headers))
"""
"""A browser that opens what it is given, and notes it."""


def test_each_address_lets_in_once(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("")
    (tmp_path / "browser.py").write_text(BROWSER)
    with open_console(tmp_path) as printed:
        url = printed.partition("/#")[0]
        made = console(tmp_path, "--no-browser", "--url", url)
        opened = console(tmp_path, "--url", url, BROWSER=f"{sys.executable} {tmp_path / 'browser.py'} %s")
        given, mode, page = (tmp_path / "opened").read_text().split("\n", 2)
        found = re.search('url=(.*?)"', page)
        assert found is not None
        addresses = [printed, made.stdout.strip(), found[1]]
        assert [log_in(address) for address in addresses * 2] == [200, 200, 403, 403, 403, 403]
        nowhere = console(tmp_path, "--url", url, BROWSER="/no/such/browser %s")
        assert log_in(nowhere.stdout.strip()) == 200
    assert (opened.returncode, opened.stdout, opened.stderr) == (0, "", "")
    assert len(set(addresses)) == 3
    assert all(re.fullmatch(rf"{re.escape(url)}/#secret=[\w-]{{32}}", address) for address in addresses)
    # Whoever lists the processes of the machine sees the name of a file that they cannot read.
    assert addresses[2].partition("=")[2] not in given
    assert (given.startswith("file:///"), mode) == (True, "600")
    assert list((tmp_path / ".toolpost").glob("console-*")) == []


def test_where_a_token_is_required_addresses_have_a_secret_too_which_is_nothing_without_the_token(
    tmp_path: Path,
) -> None:
    (tmp_path / "toolpost.toml").write_text("")
    token = {"TOOLPOST_TOKEN": "the-right-token-of-32-characters"}
    bearer = {"Authorization": f"Bearer {token['TOOLPOST_TOKEN']}"}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with open_console(tmp_path, **token) as printed:
        url = printed.partition("/#")[0]
        made = console(tmp_path, "--no-browser", "--url", url, **token)
        remote = console(elsewhere, "--no-browser", "--url", url, **token)
        addresses = [printed, made.stdout.strip()]
        assert [log_in(address) for address in addresses] == [401, 401]
        assert [log_in(address, **bearer) for address in addresses * 2] == [200, 200, 403, 403]
    assert remote.stdout.strip() == f"{url}/", "no store, and so no secret: the token is enough to look"


@attack(
    "caller",
    "reads the journal or the log of a container for the console's secret",
    "it is printed to a terminal only",
)
def test_the_secret_is_printed_on_a_terminal_alone(tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("")
    serve = ("serve", "--listen", "127.0.0.1:0")
    with open_process(serve, tmp_path, dict(os.environ)) as process:
        assert process.stderr is not None
        piped = next(line for line in process.stderr if line.startswith("console: "))
    with open_terminal([TOOLPOST, *serve], cwd=tmp_path, env=dict(os.environ)) as terminal:
        terminal.wait_for("console: ")
        shown = terminal.wait_for("\n")
        assert log_in(shown.strip()) == 200

    assert piped == "console: `toolpost console` opens it\n"


def test_printed_addresses_are_those_that_browsers_reach(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    (tmp_path / "toolpost.toml").write_text(
        f'[http]\nlisten = "127.0.0.1:{port}"\npublic_url = "https://tools.example.com"\n'
    )
    with open_terminal([TOOLPOST, "serve"], cwd=tmp_path, env=dict(os.environ)) as terminal:
        served = terminal.wait_for("(Ctrl-C stops it)")
        terminal.wait_for("console: ")
        shown = terminal.wait_for("\n").strip()
        made = console(tmp_path, "--no-browser").stdout.strip()
        addresses = [each.replace("https://tools.example.com", f"http://127.0.0.1:{port}") for each in (shown, made)]
        assert [log_in(address) for address in addresses] == [200, 200], "the secrets are those of this gateway"

    assert "at https://tools.example.com/mcp " in served
    assert all(address.startswith("https://tools.example.com/#secret=") for address in (shown, made))


def test_without_a_gateway_it_says_so(tmp_path: Path) -> None:
    failed = console(tmp_path, "--no-browser", "--url", "http://127.0.0.1:1")

    assert failed.returncode != 0
    assert "toolpost serve" in failed.stderr
