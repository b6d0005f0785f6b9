"""Which clients are logged in, and an end to it: at the command line and over HTTP, for all gateways of a store."""

import json
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from tests.hostile.attacks import attack
from tests.hostile.test_removed_callers import END, rest_of, stream
from tests.parts.authorization_server.conftest import PASSPHRASE, Gateway, OpenGateway, Pkce, query_of
from tests.waiting import until
from tests.ways import ENVELOPE, STATELESS
from toolpost.base.passphrase import hash_passphrase
from toolpost.cli.main import main
from toolpost.parts.authorization_server import records
from toolpost.store.callers import TOPIC

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.every_store]

ADMITTED = 400
LISTEN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "subscriptions/listen",
    "params": {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE},
}
MODERN = {"mcp_protocol_version": STATELESS, "mcp_method": "subscriptions/listen"}


async def run_logins(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run `toolpost auth sessions`, as an operator does beside running gateways."""
    command = ["auth", "sessions", *arguments, "--config", str(folder / "toolpost.toml")]
    done = await anyio.to_thread.run_sync(lambda: CliRunner().invoke(main, command))
    return done.exit_code, done.output


async def wait_until_refused(gateway: Gateway, token: str, within_s: float = 20.0) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if await gateway.ping(token) == 401:
            return True
        await anyio.sleep(0.05)
    return False


async def test_the_command_ends_logins_at_all_gateways_of_the_store(
    open_gateway: OpenGateway, store_url: str, tmp_path: Path
) -> None:
    hashed = hash_passphrase(PASSPHRASE)
    callers = f'[callers.ada]\npassphrase_hash = "{hashed}"\n[callers.bob]\npassphrase_hash = "{hashed}"\n'
    async with (
        open_gateway(callers=callers, store=store_url) as first,
        open_gateway(http=f'public_url = "{first.url}"', callers=callers, store=store_url) as second,
    ):
        client, tokens = await first.log_in()
        other_client, other = await first.log_in()
        before = [await gateway.ping(tokens["access_token"]) for gateway in (first, second)]
        listed = json.loads((await run_logins(tmp_path, "--json"))[1])["sessions"]
        async with stream(second.url, tokens["access_token"], "POST", "/mcp", LISTEN, **MODERN) as open_stream:
            ended = await run_logins(tmp_path, "--revoke", "--client", client)
            # Far below the 30 s after which a token is looked up in any case.
            refused = [await wait_until_refused(gateway, tokens["access_token"]) for gateway in (first, second)]
            rest = await rest_of(open_stream, 20)
        refreshed = await first.refresh(client, tokens["refresh_token"])
        kept = [await gateway.ping(other["access_token"]) for gateway in (first, second)]
        table = (await run_logins(tmp_path))[1]
        unnamed = await run_logins(tmp_path, "--revoke")

    assert before == [ADMITTED, ADMITTED]
    assert [(one["caller"], one["client"]) for one in listed] == [("ada", other_client), ("ada", client)]
    assert listed[1]["clientName"] == "Test"
    assert listed[1]["scopes"] == ["tools"]
    assert listed[1]["since"] <= listed[1]["lastUsed"] < listed[1]["until"]
    assert ended == (0, "Revoked one session.\n")
    assert refused == [True, True]
    assert rest is not None
    assert rest.endswith(END)
    assert refreshed.json()["error"] == "invalid_grant"
    assert kept == [ADMITTED, ADMITTED]
    assert listed[0]["id"] in table
    assert listed[1]["id"] not in table
    assert unnamed[0] == 2


async def test_a_login_that_is_used_again_says_so(
    open_gateway: OpenGateway, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "USE_S", -1.0)
    async with open_gateway(store=store_url) as gateway:
        _, tokens = await gateway.log_in()
        read = gateway.app.store.scripts.read
        (before,) = await read(lambda: records.list_logins(records.Which()))
        await anyio.sleep(0.02)  # the clock of the store goes on
        await gateway.ping(tokens["access_token"])
        (after,) = await read(lambda: records.list_logins(records.Which()))

    assert before.used_at is not None
    assert after.used_at is not None
    assert after.used_at > before.used_at


@attack("caller", "lists or ends logins of others over HTTP", "it sees its own, and its clients see none")
async def test_callers_see_and_end_their_own_logins(open_gateway: OpenGateway, tmp_path: Path) -> None:
    hashed = hash_passphrase(PASSPHRASE)
    for name in ("ada", "bob", "root"):
        (tmp_path / f"{name}.token").write_text(f"token-of-{name}")
    callers = "".join(
        f'[callers.{name}]\npassphrase_hash = "{hashed}"\ntoken = "${{file:{name}.token}}"\n' for name in ("ada", "bob")
    )
    callers += '[callers.root]\ntoken = "${file:root.token}"\nadmin = true\n'

    async def ask(token: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {token}"}
        answer = await gateway.http.request(method, f"{gateway.url}{path}", headers=headers, json=body)
        return answer.status_code, answer.json()

    async with open_gateway(callers=callers) as gateway:
        _, tokens = await gateway.log_in()
        client, _ = await gateway.log_in()
        own = await ask("token-of-ada", "GET", "/api/logins")
        others = await ask("token-of-bob", "GET", "/api/logins")
        everything = await ask("token-of-root", "GET", "/api/logins")
        by_client = await ask(tokens["access_token"], "GET", "/api/logins")
        login = own[1]["logins"][1]["id"]
        foreign = await ask("token-of-bob", "POST", "/api/logins/revoke", {"login": login})
        sideways = await ask("token-of-bob", "POST", "/api/logins/revoke", {"caller": "ada"})
        empty = await ask("token-of-root", "POST", "/api/logins/revoke", {})
        before = await gateway.ping(tokens["access_token"])
        revoked = await ask("token-of-ada", "POST", "/api/logins/revoke", {"login": login})
        after = await gateway.ping(tokens["access_token"])
        rest = await ask("token-of-root", "POST", "/api/logins/revoke", {"caller": "ada", "client": client})
        none = await ask("token-of-root", "GET", "/api/logins")

    assert own[0] == 200
    assert len(own[1]["logins"]) == 2
    assert others == (200, {"logins": []})
    assert everything == own
    assert by_client[0] == 403
    assert [foreign[0], sideways[0], empty[0]] == [404, 404, 400]
    assert (before, after) == (ADMITTED, 401)
    assert [one["id"] for one in revoked[1]["revoked"]] == [login]
    assert [one["client"] for one in rest[1]["revoked"]] == [client]
    assert none == (200, {"logins": []})


async def test_a_caller_of_the_store_logs_in_with_its_token_until_it_is_revoked(
    open_gateway: OpenGateway, store_url: str
) -> None:
    token = "the-token-of-cleo-with-32-characters"
    async with open_gateway(store=store_url) as gateway:
        callers = gateway.app.store.callers
        await callers.add("cleo", token, None, ("does__echo",), mode="full", made_by="ada")
        gateway.app.store.wakeups.ring(TOPIC)

        async def is_admitted(token: str = token) -> bool:
            return await gateway.ping(token) == 400

        await until(is_admitted)
        client, pkce = str((await gateway.register())["client_id"]), Pkce()
        page = await gateway.open_page(client, pkce)
        page = await gateway.send_form(page, action="sign-in", name="cleo", passphrase=token)
        assert "<strong>cleo</strong>" in page.text
        done = await gateway.send_form(page, action="allow")
        tokens = (await gateway.exchange(client, query_of(done.headers["location"])["code"], pkce)).json()
        assert await is_admitted(tokens["access_token"])

        await callers.remove("cleo")
        # Another of the same name has other logins.
        await callers.add("cleo", "another-token-of-32-characters-or-so", None, None, mode="full", made_by="ada")
        gateway.app.store.wakeups.ring(TOPIC)

        async def is_out() -> bool:
            return not await is_admitted()

        await until(is_out)
        assert not await is_admitted(tokens["access_token"])
        assert (await gateway.refresh(client, tokens["refresh_token"])).status_code == 400
