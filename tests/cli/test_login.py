"""`toolpost login` and `toolpost auth logout`, as a person runs them; the browser is a program that follows redirects."""

import asyncio
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from click.testing import CliRunner

from tests.loaded import loaded_toolpost
from tests.upstreams.servers.oauth_server import OAuthServer, serving_oauth
from tests.ways import server_environment
from toolpost.app import open_app, open_http
from toolpost.cli.main import main
from toolpost.settings import load_config

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

BROWSER = f"{sys.executable} {Path(__file__).with_name('headless_browser.py')} %s"


async def toolpost(folder: Path, *words: str, **environment: str) -> tuple[int, str, str]:
    process = await start(folder, *words, **environment)
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def start(folder: Path, *words: str, **environment: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *loaded_toolpost(*words),
        cwd=folder,
        env=server_environment() | {"BROWSER": BROWSER} | environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def configure(folder: Path, url: str, more: str = "") -> None:
    (folder / "toolpost.toml").write_text(f'plugins.bundled = []\n[servers.up]\nurl = "{url}"\n{more}')


def secrets_of(server: OAuthServer) -> list[str]:
    return [*server.access, *server.refresh, *(form.get("code_verifier", "-") for form in server.forms)]


async def test_a_login_suffices_and_a_logout_revokes(tmp_path: Path) -> None:
    server = OAuthServer()
    server.resource_metadata["scopes_supported"] = ["read"]
    async with serving_oauth(server) as url:
        configure(tmp_path, url)
        before = await toolpost(tmp_path, "call", "up__echo", "text=hi")
        logged_in = await toolpost(tmp_path, "login", "up", "--json", "--scope", "mail")
        called = await toolpost(tmp_path, "call", "up__echo", "text=hi")
        secrets = secrets_of(server)
        out = await toolpost(tmp_path, "auth", "logout", "up")
        after = await toolpost(tmp_path, "auth", "logout", "up")

    assert before[0] != 0
    assert "toolpost login up" in before[2]
    assert logged_in[0] == 0, logged_in
    granted = json.loads(logged_in[1])
    assert (granted["server"], granted["issuer"], granted["isRenewable"]) == ("up", server.base, True)
    assert granted["scopes"] == ["read", "mail"]
    assert called[:2] == (0, "hi\n"), called
    assert (out[0], "revoked" in out[1]) == (0, True), out
    assert server.counts["revoked"] == 2
    assert after[0] != 0
    assert "there is no login to `up`" in after[2]
    files = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    printed = str([before, logged_in, called, out, after])
    for secret in secrets:
        assert secret not in printed
        assert secret.encode() not in files


async def test_the_url_is_printed_and_the_one_at_the_end_can_be_pasted(tmp_path: Path) -> None:
    server = OAuthServer()
    async with serving_oauth(server) as url:
        configure(tmp_path, url)
        process = await start(tmp_path, "login", "up", "--no-browser")
        assert process.stderr is not None
        assert process.stdin is not None
        link = await find_line(process.stderr, r"(http\S+/authorize\S+)")
        async with httpx2.AsyncClient() as browser:
            redirect = (await browser.get(link)).headers["location"]
            stray = await browser.get(f"{redirect.partition('?')[0]}?state=abc&code=x")
            elsewhere = await browser.get(redirect, headers={"host": "evil.example"})
            other = await browser.get(redirect.replace("/callback", "/"))
        process.stdin.write(f"nothing\n{redirect}\n".encode())
        out, err = await process.communicate()

    assert process.returncode == 0, err.decode()
    assert "Logged in to up" in out.decode()
    assert [page.status_code for page in (stray, elsewhere, other)] == [200, 421, 404]
    assert b"ignored a redirect" in err


async def test_a_code_is_printed_to_log_in_with_on_another_device(tmp_path: Path) -> None:
    server = OAuthServer()
    server.device = {}
    server.device_errors = ["authorization_pending", "authorization_pending"]
    async with serving_oauth(server) as url:
        configure(tmp_path, url)
        first = await toolpost(tmp_path, "login", "up", "--device", "--json", "--scope", "mail")
        second = await toolpost(tmp_path, "login", "up", "--device")
        codes = [form["device_code"] for form in server.forms if "device_code" in form]
        secrets = {*secrets_of(server), *codes} - {"-"}

    assert first[0] == 0, first
    shown, granted = map(json.loads, first[1].splitlines())
    assert (shown["userCode"], shown["url"]) == ("WDJB-MJHT", f"{server.base}/type")
    assert shown["completeUrl"] == f"{server.base}/type?user_code=WDJB-MJHT"
    assert (granted["issuer"], granted["scopes"], granted["isRenewable"]) == (server.base, ["mail"], True)
    assert second[0] == 0, second
    assert f"{server.base}/type\nWDJB-MJHT\n" in second[2]
    assert len(server.clients) == 1, "the second login registered another client"
    assert len(codes) == 4
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    for secret in secrets:
        assert secret not in str([first, second])
        assert secret.encode() not in written


async def test_an_interrupted_login_on_another_device_leaves_nothing(tmp_path: Path) -> None:
    server = OAuthServer()
    server.device = {}
    server.device_errors = ["authorization_pending"] * 1000
    async with serving_oauth(server) as url:
        configure(tmp_path, url)
        process = await start(tmp_path, "login", "up", "--device")
        assert process.stderr is not None
        await find_line(process.stderr, "(WDJB-MJHT)")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            _, err = await process.communicate()
        server.device = None
        without = await toolpost(tmp_path, "login", "up", "--device")

    assert process.returncode != 0
    assert b"Traceback" not in err
    assert server.access == {}
    assert without[0] != 0
    assert "does not offer logins on another device" in without[2]
    assert "toolpost login up --no-browser" in without[2]


async def test_a_call_that_requires_a_login_shows_the_address(tmp_path: Path) -> None:
    server = OAuthServer()
    async with serving_oauth(server) as url:
        configure(tmp_path, url, '[http]\nlisten = "127.0.0.1:0"\n[store]\nurl = "sqlite:store.db"\n')
        config = load_config(tmp_path / "toolpost.toml")
        async with open_app(config) as app, open_http(app) as gateway:
            await toolpost(tmp_path, "login", "up")
            # The gateway learns the tools when it sees the login.
            async with asyncio.timeout(60):
                while (await toolpost(tmp_path, "call", "--url", gateway, "up__echo", "text=hi"))[0] != 0:
                    await anyio.sleep(0.1)
            logout = ["auth", "logout", "up", "--config", str(tmp_path / "toolpost.toml")]
            await anyio.to_thread.run_sync(lambda: CliRunner().invoke(main, logout))
            refused = await toolpost(tmp_path, "call", "--url", gateway, "up__echo", "text=hi")

    assert refused[0] != 0
    assert f"hint: open {gateway.removesuffix('/mcp')}/login/up?ticket=" in refused[2]


async def test_a_login_without_a_name_lists_the_tools_to_callers_who_have_none(tmp_path: Path) -> None:
    server = OAuthServer()
    (tmp_path / "ann").write_text("token-of-ann-" + "x" * 30)
    (tmp_path / "ann").chmod(0o600)
    async with serving_oauth(server) as url:
        settings = (
            '[http]\nlisten = "127.0.0.1:0"\n[store]\nurl = "sqlite:store.db"\n[callers.ann]\ntoken = "${file:ann}"\n'
        )
        configure(tmp_path, url, f'credentials = "caller"\n{settings}')
        config = load_config(tmp_path / "toolpost.toml")
        async with open_app(config) as app, open_http(app) as gateway:
            call = ["call", "--url", gateway, "up__echo", "text=hi"]
            token = {"TOOLPOST_TOKEN": "token-of-ann-" + "x" * 30}
            unknown = await toolpost(tmp_path, *call, **token)
            await toolpost(tmp_path, "login", "up")
            async with asyncio.timeout(60):
                while "/login/up?ticket=" not in (refused := await toolpost(tmp_path, *call, **token))[2]:
                    await anyio.sleep(0.1)

    assert "no tool is called `up__echo`" in unknown[2]
    assert refused[0] != 0
    assert "requires a login" in refused[2]


async def find_line(stream: asyncio.StreamReader, pattern: str) -> str:
    async with asyncio.timeout(60):
        while line := (await stream.readline()).decode():
            if found := re.search(pattern, line):
                return found[1]
    raise AssertionError("the command ended")


async def test_a_login_that_fails_says_why(tmp_path: Path) -> None:
    server = OAuthServer()
    server.authorize_error = "access_denied"
    async with serving_oauth(server) as url:
        configure(tmp_path, url, '[callers.ann]\ntoken = "${ANN}"\n')
        refused = await toolpost(tmp_path, "login", "up")
        late = await toolpost(tmp_path, "login", "up", "--timeout", "1", BROWSER="true %s")
        unknown = await toolpost(tmp_path, "login", "upp")
        shared = await toolpost(tmp_path, "login", "up", "--caller", "ann")
        configure(tmp_path, url, 'credentials = "caller"\n[callers.ann]\ntoken = "${ANN}"\n')
        nobody = await toolpost(tmp_path, "login", "up", "--caller", "anne")
        auth = 'type = "client_credentials"\nclient_id = "me"\nissuer = "https://as.example"\n'
        configure(tmp_path, url, f"[servers.up.auth]\n{auth}")
        needless = await toolpost(tmp_path, "login", "up")

    results: dict[str, Any] = {
        "refused": refused,
        "late": late,
        "unknown": unknown,
        "shared": shared,
        "nobody": nobody,
        "needless": needless,
    }
    assert {name: code for name, (code, _, _) in results.items() if code == 0} == {}
    assert "access_denied" in refused[2]
    assert "within 1 s" in late[2]
    assert "did you mean `up`?" in unknown[2]
    assert "unknown caller `anne`" in nobody[2]
    assert "needs no login" in needless[2]
    assert 'credentials = "caller"' in shared[2]
