"""Mistakes in `toolpost.toml`: the message has the place and the repair."""

from pathlib import Path

import pytest

from toolpost.contracts.errors import BadConfiguration
from toolpost.settings import load_config


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("[http]\nlisten = 8420", "line 2: http.listen must be a string, not an integer", 'listen = "8420"'),
        (
            '[servers.a]\ncommand = "x"\n\nargs = "-y foo"',
            "line 4: servers.a.args must be a list, not a string",
            'args = ["-y", "foo"]',
        ),
        ('[limits]\ntimeout_s = "60"', "line 2: limits.timeout_s must be a number, not a string", "timeout_s = 60"),
        ('[limits]\ntimeout_s = "soon"', "line 2: limits.timeout_s must be a number, not a string", "timeout_s = 10"),
        ('http = "x"', "line 1: http must be a table, not a string", "write a table: [http]"),
        (
            '[servers.a]\ncommand = ["npx", "-y"]',
            "line 2: servers.a.command must be a string, not a list",
            'command = "npx"',
        ),
        (
            '[servers.a]\ncommand = "x"\nenabled = "no"',
            "line 3: servers.a.enabled must be true or false, not a string",
            "enabled = false",
        ),
        ('[servers."a"]\ncommand = "x"\nenv = ["A=1"]', "line 3: servers.a.env must be a table", "[servers.a.env]"),
        (
            '[contracts]\nmode = "enforce"',
            "line 1: contracts must be a string, not a table",
            'contracts = "enforce"',
        ),
        ("plugins.load = [3]", "line 1: plugins.load[0] must be a string", None),
        ("[limits]\ntimeout_s = -1", "line 2: limits.timeout_s must be a number > 0", None),
        ("servers.a = {command = 3}", "line 1: servers.a.command must be a string", 'command = "3"'),
    ],
)
def test_a_wrong_type_is_explained(tmp_path: Path, text: str, says: str, hint: str | None) -> None:
    (tmp_path / "toolpost.toml").write_text(text)

    with pytest.raises(BadConfiguration) as raised:
        load_config(folder=tmp_path)
    assert f"toolpost.toml, {says}" in raised.value.message
    assert "Expected" not in raised.value.message
    assert (raised.value.hint is None) == (hint is None)
    assert hint is None or hint in str(raised.value.hint)


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("[http]\nlisten = 127.0.0.1:8420\n", "(at line 2, column 15)", 'put text in quotes: listen = "…"'),
        ("[servers.a]\ncommand = npx\n", "(at line 2, column 11)", 'put text in quotes: command = "…"'),
        ("[console]\nenabled = True\n", "(at line 2, column 11)", "write enabled = true"),
        ('[servers.a]\ncommand = "C:\\Users"\n', "(at line 2, column 16)", "use single quotes"),
        ("[servers.a]\n[servers.a]\n", "(at line 2, column 11)", "each table and each key once"),
        ("a = [1, 2\n", "(at end of document)", None),
    ],
)
def test_text_that_is_not_toml_is_explained(tmp_path: Path, text: str, says: str, hint: str | None) -> None:
    (tmp_path / "toolpost.toml").write_text(text)

    with pytest.raises(BadConfiguration) as raised:
        load_config(folder=tmp_path)
    assert "toolpost.toml is not TOML: " in raised.value.message
    assert says in raised.value.message
    assert (raised.value.hint is None) == (hint is None)
    assert hint is None or hint in str(raised.value.hint)


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ('listen = "127.0.0.1:1"', "unknown setting `listen`", "did you mean `http.listen`?"),
        ('token = "x"', "unknown setting `token`", "did you mean `http.token`?"),
        ("enabled = true", "unknown setting `enabled`", "known settings: agents, apis"),
        ('[discovery]\nmodels = ["a"]', "`discovery.models`", "did you mean `discovery.reranker.models`?"),
    ],
)
def test_a_setting_outside_its_table_is_explained(tmp_path: Path, text: str, says: str, hint: str) -> None:
    (tmp_path / "toolpost.toml").write_text(text)

    with pytest.raises(BadConfiguration) as raised:
        load_config(folder=tmp_path)
    assert says in raised.value.message
    assert str(raised.value.hint).startswith(hint)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('listen = "127.0.0.1"', "toolpost.toml: http.listen: `127.0.0.1` is not an address"),
        ('listen = "127.0.0.1:99999"', "toolpost.toml: http.listen: `127.0.0.1:99999` is not an address"),
        ('listen = "127.0.0.1:²"', "toolpost.toml: http.listen: `127.0.0.1:²` is not an address"),
        ('public_url = "ftp://tools.example.com"', "toolpost.toml: http.public_url is not a valid HTTP URL"),
        ('public_url = "${PUBLIC_URL"', "toolpost.toml: http.public_url is not a valid HTTP URL"),
    ],
)
def test_a_wrong_address_is_named_with_its_setting(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "toolpost.toml").write_text(f"[http]\n{text}\n")

    with pytest.raises(BadConfiguration) as raised:
        load_config(folder=tmp_path)
    assert says in raised.value.message
