"""`toolpost auth token`: a new token, and the lines by which a gateway admits it."""

import stat
import tomllib
from pathlib import Path

from tests.cli.conftest import Run
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
