"""A store moves to another kind of database, and logins and credentials with it."""

from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from tests.parts.authorization_server.conftest import PASSPHRASE, OpenGateway
from tests.postgres import Postgres
from toolpost.base.passphrase import hash_passphrase
from toolpost.cli.main import main
from toolpost.credentials.vault import Vault
from toolpost.settings.key_place import key_place_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.every_store]

ADMITTED = 400


@pytest.mark.parametrize("is_to_postgres", [True, False], ids=["to postgres", "to sqlite"])
async def test_logins_and_credentials_move_with_the_store(
    *, is_to_postgres: bool, open_gateway: OpenGateway, postgres: Postgres, tmp_path: Path
) -> None:
    places = [f"sqlite:{tmp_path / 'data' / 'store.db'}", postgres.new_url()]
    source, target = places if is_to_postgres else places[::-1]
    callers = f'[callers.ada]\npassphrase_hash = "{hash_passphrase(PASSPHRASE)}"\n'
    async with open_gateway(callers=callers, store=source) as gateway:
        public = gateway.url
        client, tokens = await gateway.log_in()
        ended_client, ended = await gateway.log_in()
        await gateway.http.post(
            f"{gateway.url}/revoke", data={"client_id": ended_client, "token": ended["access_token"]}
        )
        vault = Vault(gateway.app.store, key_place_of(gateway.app.config))
        await vault.put("github", "ada", "TOKEN", b"ghp_of_ada")
    command = ["store", "migrate", "--to", target, "--config", str(tmp_path / "toolpost.toml")]
    moved = await anyio.to_thread.run_sync(lambda: CliRunner().invoke(main, command))
    async with open_gateway(http=f'public_url = "{public}"', callers=callers, store=target) as gateway:
        admitted = [await gateway.ping(each["access_token"]) for each in (tokens, ended)]
        refreshed = await gateway.refresh(client, tokens["refresh_token"])
        again = await gateway.refresh(client, tokens["refresh_token"])
        vault = Vault(gateway.app.store, key_place_of(gateway.app.config))
        value = await vault.get("github", "ada", "TOKEN")

    assert moved.exit_code == 0, moved.output
    assert admitted == [ADMITTED, 401]
    assert refreshed.status_code == 200
    assert again.json()["error"] == "invalid_grant"
    assert value == b"ghp_of_ada"
