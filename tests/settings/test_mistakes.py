"""A value of the wrong type in `toolpost.toml`: the message has the line, the key, the type and an example."""

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
