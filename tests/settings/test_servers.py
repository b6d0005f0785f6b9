"""`[servers.NAME]`: what may be written, what is refused, and what comes of it."""

import re
import tomllib
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from toolpost.contracts.contract import check_plugin_name
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings import Config, ResolvedServer, ServerSettings, config_schema, load_config
from toolpost.settings.servers import usable_name
from toolpost.upstreams.spec import ServerSpec

EVERYTHING = """
[servers.local_one]
command = "npx"
args = ["-y", "server"]
env = {TOKEN = "${TOKEN}"}
cwd = "sub"
transport = "stdio"
tags = ["a", "b"]
allow = ["get_*"]
deny = ["get_secret"]
timeout_s = 3
unknown_arguments = "reject"
results = "warn"
contracts = "enforce"
strategy = "per_session"
era = "handshake"
min_ready = 1
idle_s = 10
enabled = true

[servers.remote]
url = "https://example.com/mcp"
headers = {Authorization = "Bearer ${TOKEN}"}
transport = "sse"
"""


def loaded(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "toolpost.toml"
    path.write_text(text)
    return load_config(path)


def resolved(tmp_path: Path, text: str, **environment: str) -> ResolvedServer:
    (server,) = loaded(tmp_path, text).resolve_servers(environment).values()
    return server


def test_every_setting_is_read_and_resolved(tmp_path: Path) -> None:
    config = loaded(tmp_path, EVERYTHING)
    servers = config.resolve_servers({"TOKEN": "t0ps3cret"})

    assert servers["local_one"] == ResolvedServer(
        name="local_one",
        command=("npx", "-y", "server"),
        env={"TOKEN": "t0ps3cret"},
        cwd=tmp_path / "sub",
        url=None,
        headers={},
        transport="stdio",
        tags=frozenset({"a", "b"}),
        allow=("get_*",),
        deny=("get_secret",),
        timeout_s=3.0,
        unknown_arguments="reject",
        contracts="enforce",
        results="warn",
        strategy="per_session",
        era="handshake",
        min_ready=1,
        idle_s=10.0,
    )
    assert servers["remote"].headers == {"Authorization": "Bearer t0ps3cret"}
    assert (servers["remote"].command, servers["remote"].transport) == (None, "sse")
    assert "t0ps3cret" not in repr(servers)
    assert ServerSpec(**vars(servers["local_one"])).command == ("npx", "-y", "server")
    assert set(tomllib.loads(EVERYTHING)["servers"]["local_one"]) | {"url", "headers"} == set(
        ServerSettings.__struct_fields__
    )


def test_the_published_schema_knows_servers() -> None:
    schema = jsonschema_rs.validator_for(config_schema())

    schema.validate(tomllib.loads(EVERYTHING))
    assert not schema.is_valid({"servers": {"a__b": {"command": "x"}}})
    assert not schema.is_valid({"servers": {"a": {"comand": "x"}}})


def test_defaults_are_as_documented(tmp_path: Path) -> None:
    server = resolved(tmp_path, '[servers.a]\nurl = "http://localhost:1/mcp"')

    assert server.transport is None
    assert (server.allow, server.deny, server.tags) == (("*",), (), frozenset())
    assert (server.unknown_arguments, server.results, server.strategy) == ("allow", "enforce", "shared")
    assert (server.min_ready, server.idle_s, server.timeout_s, server.cwd) == (0, 300.0, None, tmp_path)
    assert hash(server) == hash(resolved(tmp_path, '[servers.a]\nurl = "http://localhost:1/mcp"'))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[servers.git]\ncomand = "x"', "unknown setting `servers.git.comand`"),
        ("[servers.git]\n", "servers.git has neither `command` nor `url`"),
        ('[servers.git]\ncommand = "x"\nurl = "http://x"', "servers.git has both"),
        ('[servers.git]\ncommand = ""', "servers.git.command is empty"),
        ('[servers.git]\ncommand = "x"\nargs = "y"', "servers.git.args: Expected `array`"),
        ('[servers.git]\ncommand = "x"\nargs = [1]', "servers.git.args[0]: Expected `str`"),
        ('[servers.git]\ncommand = "x"\nenv = {PORT = 1}', "servers.git.env.PORT must be a string"),
        ('[servers.git]\ncommand = "x"\nenv = {"A=B" = "1"}', "servers.git.env: `A=B` is not a valid name"),
        (
            '[servers.git]\nurl = "http://x"\nheaders = {"A B" = "1"}',
            "servers.git.headers: `A B` is not a valid header name",
        ),
        ('[servers.git]\ncommand = "x"\nheaders = {A = "b"}', "servers.git.headers needs a `url`"),
        ('[servers.git]\nurl = "http://x"\nargs = ["b"]', "servers.git.args needs a `command`"),
        ('[servers.git]\ncommand = "x"\ntransport = "http"', "servers.git.transport is `http`, but"),
        ('[servers.git]\nurl = "http://x"\ntransport = "stdio"', "servers.git.transport is `stdio`, but"),
        ('[servers.git]\nurl = "http://x"\ntransport = "ws"', "servers.git.transport: Invalid enum value 'ws'"),
        ('[servers.git]\nurl = "ftp://x"', "servers.git.url is not a valid HTTP URL"),
        ('[servers.git]\ncommand = "x"\nmin_ready = -1', "servers.git.min_ready: Expected `int` >= 0"),
        (
            '[servers.git]\ncommand = "x"\nmin_ready = 2',
            "servers.git.min_ready is 2, but strategy `shared` runs one instance",
        ),
        ('[servers."my git"]\ncommand = "x"', "servers.`my git`: a server's name may contain"),
        ("servers = 3", "servers must be a table"),
        ("[servers]\ngit = 3", "servers.git must be a table"),
    ],
)
def test_what_is_wrong_is_named_with_server_and_key(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration) as refused:
        loaded(tmp_path, text)

    assert message in refused.value.message
    assert str(tmp_path / "toolpost.toml") in refused.value.message


def test_nearest_setting_and_usable_name_are_suggested(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration) as refused:
        loaded(tmp_path, '[servers.git]\ncomand = "x"')
    assert refused.value.hint == "did you mean `servers.git.command`?"

    with pytest.raises(BadConfiguration) as refused:
        loaded(tmp_path, '[servers."my git"]\ncommand = "x"')
    assert refused.value.hint == "rename it to `my-git`"


def test_disabled_server_is_left_out_and_needs_no_variables(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[servers.a]\ncommand = "${NOPE}"\nenabled = false')

    assert config.resolve_servers({}) == {}
    with pytest.raises(BadConfiguration, match=r"servers\.a\.command: the environment variable NOPE"):
        config.resolve_server("a", {})


def test_missing_variable_is_named_and_no_value_is_told(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[servers.a]\ncommand = "x"\nenv = {A = "hunter2", B = "pre${MISSING}hunter3"}')
    with pytest.raises(BadConfiguration) as refused:
        config.resolve_servers({"OTHER": "hunter4"})

    assert refused.value.message == "servers.a.env.B: the environment variable MISSING is not set."
    assert "hunter" not in str(refused.value.as_object())


@pytest.mark.parametrize(
    ("written", "filled"),
    [
        ("${A}", "1"),
        ("x${A}y${B}z", "x1y2z"),
        ("${env:A}", "1"),
        ("${NO:-d}", "d"),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY}", ""),
        ("${NO:-}", ""),
        ("${NO:-${A}/${B}}", "1/2"),
        ("${TRICK}", "${A}"),
        ("$${A}", "${A}"),
        ("$A ${", "$A ${"),
        ("${workspaceFolder}/x", "PROJECT/x"),
        ("${workspaceFolderBasename}", "NAME"),
    ],
)
def test_references_are_filled_in_once(written: str, filled: str, tmp_path: Path) -> None:
    environment = {"A": "1", "B": "2", "EMPTY": "", "TRICK": "${A}"}
    server = resolved(tmp_path, f'[servers.a]\ncommand = "x"\nargs = ["{written}"]', **environment)

    expected = filled.replace("PROJECT", str(tmp_path)).replace("NAME", tmp_path.name)
    assert server.command == ("x", expected)


@pytest.mark.parametrize(
    ("key", "written"),
    [
        ("command", 'command = "${V}"'),
        ("args[1]", 'command = "x"\nargs = ["a", "${V}"]'),
        ("env.E", 'command = "x"\nenv = {E = "${V}"}'),
        ("cwd", 'command = "x"\ncwd = "${V}"'),
        ("url", 'url = "${V}"'),
        ("headers.H", 'url = "http://x"\nheaders = {H = "${V}"}'),
    ],
)
def test_every_place_takes_variables(key: str, written: str, tmp_path: Path) -> None:
    config = loaded(tmp_path, f"[servers.a]\n{written}")

    assert config.resolve_servers({"V": "http://v"})["a"].name == "a"
    with pytest.raises(BadConfiguration, match=re.escape(f"servers.a.{key}: the environment variable")):
        config.resolve_servers({})


@pytest.mark.parametrize(
    ("written", "message", "hint"),
    [
        ("${input:github-token}", "uses `${input:github-token}`", "environment variable GITHUB_TOKEN"),
        ("${command:x.y}", "`${command:x.y}` is not a known reference", "write ${VAR}"),
        ("${a b}", "one of its `${…}` is not a known reference", "write ${VAR}"),
        ("${A:-" * 12 + "}" * 12, "more than 8 deep", ""),
    ],
)
def test_references_that_cannot_be_filled_in_are_refused(written: str, message: str, hint: str, tmp_path: Path) -> None:
    config = loaded(tmp_path, f'[servers.a]\ncommand = "x"\nargs = ["{written}"]')
    with pytest.raises(BadConfiguration) as refused:
        config.resolve_servers({})

    assert message in refused.value.message
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('url = "${V}"', "not a url"),
        ('url = "${V}"', "http://x/\r\nHost: y"),
        ('url = "http://x"\nheaders = {A = "${V}"}', "a\r\nB: c"),
        ('command = "${V}"', ""),
        ('command = "x"\nargs = ["${V}"]', "a\0b"),
    ],
)
def test_what_variables_bring_is_checked_and_not_told(text: str, value: str, tmp_path: Path) -> None:
    config = loaded(tmp_path, f"[servers.a]\n{text}")
    with pytest.raises(BadConfiguration) as refused:
        config.resolve_servers({"V": value})

    assert refused.value.message.startswith("servers.a.")
    assert not value or value not in str(refused.value.as_object())


def test_reprs_hold_no_values(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        '[servers.a]\ncommand = "x"\nargs = ["--key", "hunter1"]\nenv = {A = "hunter2"}\n'
        '[servers.b]\nurl = "http://u:hunter3@x/hunter4?k=hunter5"\nheaders = {A = "hunter6"}',
    )

    assert "hunter" not in repr(config)
    assert "hunter" not in repr(config.resolve_servers({}))


@pytest.mark.parametrize("name", ["a", "A-1", "a_b", "-", "a__b", "_a", "a_", "a b", "", "ä", "a\n"])
def test_names_are_those_that_tools_can_carry(name: str, tmp_path: Path) -> None:
    def is_accepted_here() -> bool:
        try:
            Config(servers={name: ServerSettings(command="x")}).resolve_servers({})
        except BadConfiguration:
            return False
        return True

    def is_accepted_there() -> bool:
        try:
            check_plugin_name(name)
        except Exception:
            return False
        return True

    assert is_accepted_here() == is_accepted_there()
    check_plugin_name(usable_name(name))


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        ServerSettings(command="x").command = "y"  # type: ignore[misc]
    assert msgspec.structs.replace(ServerSettings(command="x"), enabled=False).enabled is False
