"""`toolpost config`, and what a bad configuration looks like."""

import tomllib
from pathlib import Path

from tests.cli.conftest import Run


def test_unknown_setting_is_refused_with_the_nearest(run: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('[http]\nlissen = "127.0.0.1:1"\n')
    ended = run("serve")

    assert ended.code == 3
    assert "unknown setting `http.lissen`" in ended.err
    assert "hint: did you mean `http.listen`?" in ended.err
    assert "Traceback" not in ended.err


def test_missing_file_is_the_operators_to_mend(invoke: Run) -> None:
    ended = invoke("tools", "--config", "other.toml")

    assert ended.code == 3
    assert ended.err == "error: configuration file not found: other.toml\nhint: check the path given with --config\n"


def test_what_is_set_is_shown_as_toml_with_its_source(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("limits.timeout_s = 5\n")
    ended = invoke("config", "show", TOOLPOST_TOKEN="very secret")
    machine = invoke("config", "show", "--json", TOOLPOST_TOKEN="very secret").json

    assert tomllib.loads(ended.out)["limits"]["timeout_s"] == 5
    assert f"# from {tmp_path / 'toolpost.toml'}" in ended.out
    assert "# the token comes from TOOLPOST_TOKEN" in ended.out
    assert "timeout_s = 5.0\n" in ended.out
    assert "threads = 40  # default\n" in ended.out
    assert "very secret" not in ended.out + str(machine)
    assert machine["from"] == str(tmp_path / "toolpost.toml")
    assert machine["settings"]["limits"]["timeout_s"] == 5


def test_callers_are_shown_without_their_tokens(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "ada").write_text("very-secret")
    (tmp_path / "toolpost.toml").write_text(
        '[callers.ada]\ntoken = "${file:ada}"\ntags = ["a"]\n[callers."bob@x.org"]\ntoken = "${BOB}"\ntools = []\n'
        '[callers.reader]\nscopes = ["tools:read"]\n'
        '[http]\npublic_url = "https://tools.example"\n[http.oauth.issuers.a]\nissuer = "https://login.example"\n'
    )
    ended = invoke("config", "show", BOB="other-secret")
    machine = invoke("config", "show", "--json", BOB="other-secret").json
    shown = tomllib.loads(ended.out)

    assert "-secret" not in ended.out + str(machine)
    assert shown["callers"] == {
        "ada": {"token": "${file:ada}", "tags": ["a"]},
        "bob@x.org": {"token": "${BOB}", "tools": []},
        "reader": {"scopes": ["tools:read"]},
    }
    assert shown["http"]["oauth"] == {"issuers": {"a": {"issuer": "https://login.example"}}}
    assert machine["settings"]["callers"]["ada"]["token"] == "${file:ada}"


def test_password_in_a_url_is_left_out(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('store.url = "postgresql://ada:hunter2@db/toolpost"\n')
    ended = invoke("config", "show")

    assert "hunter2" not in ended.out
    assert "postgresql://(redacted)@db/toolpost" in ended.out


def test_schema_is_json(invoke: Run) -> None:
    pretty, line = invoke("config", "schema"), invoke("config", "schema", "--json")

    assert pretty.json == line.json
    assert line.out.count("\n") == 1
    assert "http" in str(pretty.json["$defs"])


def test_servers_are_shown_with_references_and_without_secrets(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        '[servers.a]\ncommand = "x"\nenv = {API_KEY = "hunter2", OTHER_KEY = "${FROM_OUTSIDE}", "odd name" = "y"}\n'
        '[servers.b]\nurl = "https://x/mcp?token=hunter3"\nheaders = {Authorization = "Basic hunter4"}\n'
    )
    ended = invoke("config", "show", FROM_OUTSIDE="hunter5")
    machine = invoke("config", "show", "--json", FROM_OUTSIDE="hunter5")
    servers = tomllib.loads(ended.out)["servers"]

    assert "hunter" not in ended.out + machine.out
    assert servers["a"]["env"] == {"API_KEY": "(redacted)", "OTHER_KEY": "${FROM_OUTSIDE}", "odd name": "y"}
    assert servers["b"]["headers"] == {"Authorization": "Basic (redacted)"}
    assert machine.json["settings"]["servers"] == servers


def test_clients_file_is_read_as_it_is_with_its_notes(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"my api": {"url": "http://x/mcp", "alwaysAllow": []}}}')
    ended = run("config", "show", "--config", ".mcp.json")

    assert tomllib.loads(ended.out)["servers"] == {"my-api": {"url": "http://x/mcp"}}
    assert "# note: servers.my-api: `my api` was renamed to `my-api`" in ended.out
    assert "# note: servers.my-api: ignored: alwaysAllow" in ended.out


def test_broken_clients_file_is_named_with_its_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text('{\n  "mcpServers": {\n    "a": {"env": {"TOKEN": "hunter2"}} "b": 1\n  }\n}')
    ended = run("serve", "--config", ".mcp.json")

    assert ended.code == 3
    assert "error: .mcp.json is not JSON: line 3, column 40" in ended.err
    assert "hunter2" not in ended.err


def test_a_reranker_is_shown(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        '[discovery]\nmode = "both"\n[discovery.reranker]\nmodels = ["m"]\n'
        '[models.m]\nurl = "http://127.0.0.1:1/v1"\nkey = "${MY_KEY}"\n'
    )
    ended = invoke("config", "show", MY_KEY="very-secret")
    shown = tomllib.loads(ended.out)

    assert shown["discovery"] == {"mode": "both", "reranker": {"models": ["m"]}}
    assert shown["models"]["m"]["key"] == "${MY_KEY}"
    assert "very-secret" not in ended.out


def test_passwords_of_proxies_are_left_out(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        '[network]\nproxy = "http://ann:hush-hush-1@proxy:3128"\n'
        '[servers.x]\nurl = "http://x/"\nnetwork = {proxy = "http://ann:hush-hush-2@proxy:3128"}\n'
    )
    shown, as_json = invoke("config", "show"), invoke("config", "show", "--json")

    assert "hush-hush" not in shown.out + as_json.out
    assert tomllib.loads(shown.out)["servers"]["x"]["network"] == {"proxy": "http://ann:(redacted)@proxy:3128"}
