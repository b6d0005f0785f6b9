"""`toolpost auth token`: a new token, and the lines by which a gateway admits it."""

import stat
import tomllib
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.cli.conftest import Run
from tests.loaded import loaded_toolpost
from tests.waiting import until
from toolpost.app import open_app, open_http
from toolpost.settings import load_config


def test_a_token_comes_with_the_lines_for_the_configuration(invoke: Run, tmp_path: Path) -> None:
    first, second = invoke("auth", "token", "ada"), invoke("auth", "token", "ada")
    lines = first.err.partition("toolpost.toml:\n\n")[2].partition("\n\n")[0]

    assert first.code == 0
    assert len(first.out.strip()) >= 43
    assert first.out != second.out
    assert tomllib.loads(lines) == {"callers": {"ada": {"token": "${TOOLPOST_TOKEN_ADA}"}}}
    assert first.out.strip() not in first.err
    assert not list(tmp_path.iterdir())


def test_a_token_is_written_to_a_new_file_only(invoke: Run, tmp_path: Path) -> None:
    made = invoke("auth", "token", "ada@example.com", "--file", "ada.token")
    (tmp_path / "toolpost.toml").write_text(
        made.err.partition("toolpost.toml:\n\n")[2].partition("\nclients")[0], encoding="utf-8"
    )
    kept = (tmp_path / "ada.token").read_text()
    again = invoke("auth", "token", "ada@example.com", "--file", "ada.token")

    assert (made.code, made.out) == (0, "")
    assert stat.S_IMODE((tmp_path / "ada.token").stat().st_mode) == 0o600
    assert load_config(folder=tmp_path).callers["ada@example.com"].token == "${file:ada.token}"
    assert again.code == 2
    assert (tmp_path / "ada.token").read_text() == kept


def test_a_name_that_no_caller_may_have_is_refused(invoke: Run) -> None:
    assert invoke("auth", "token", "cli").code != 0
    assert "may contain letters" in invoke("auth", "token", "a b").err


def test_without_a_name_it_is_the_token_of_the_gateway(invoke: Run, tmp_path: Path) -> None:
    made = invoke("auth", "token", "--file", "token")
    (tmp_path / "toolpost.toml").write_text(made.err.partition("toolpost.toml:\n\n")[2].partition("\nclients")[0])

    assert load_config(folder=tmp_path).token() == (tmp_path / "token").read_text().strip()
    assert "set TOOLPOST_TOKEN to" in invoke("auth", "token").err
    assert "[callers" not in invoke("auth", "token").err


@pytest.mark.anyio
@pytest.mark.wire
@pytest.mark.every_store
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_running_gateway_accepts_a_token_of_the_store_until_it_is_revoked(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "ann.token").write_text("the-token-of-ann-with-32-characters")
    store = "sqlite:store.db" if kind == "sqlite" else request.getfixturevalue("postgres").new_url()
    callers = '[callers.ann]\ntoken = "${file:ann.token}"\n'
    (tmp_path / "toolpost.toml").write_text(f'store.url = "{store}"\nhttp.listen = "127.0.0.1:0"\n{callers}')

    async def command(*words: str) -> str:
        done = await anyio.run_process(loaded_toolpost("auth", "token", "cleo", *words), cwd=tmp_path)
        return done.stdout.decode().strip()

    async with open_app(load_config(folder=tmp_path)) as app, open_http(app) as url:
        made = await command("--store", "--tool", "time__*", "--mode", "readonly")
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {made}"}) as http:

            async def answers(status: int) -> bool:
                return (await http.get(url.replace("/mcp", "/api/health"))).status_code == status

            await until(lambda: answers(200), limit_s=20)
            [stored] = await app.store.callers.all()
            await command("--revoke")
            await until(lambda: answers(401), limit_s=20)

    assert (stored.tools, stored.mode, stored.made_by) == (("time__*",), "readonly", "cli")


def test_a_caller_of_the_file_and_one_that_is_not_there(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('store.url = "sqlite:store.db"\n[callers.ann]\ntoken = "${ANN_TOKEN}"\n')
    taken, gone = invoke("auth", "token", "ann", "--store"), invoke("auth", "token", "cleo", "--revoke")
    assert "toolpost.toml" in taken.err
    assert "no caller `cleo`" in gone.err


def test_options_of_the_store_are_for_the_store(invoke: Run) -> None:
    for wrong in (["--tag", "x", "ada"], ["--store"], ["--revoke"], ["--revoke", "--store", "ada"]):
        assert invoke("auth", "token", *wrong).code == 2
