"""`[servers.NAME]`: what may be written, what is refused, and what comes of it."""

import re
import sys
import tomllib
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from tests.hostile.attacks import attack
from tests.settings.resolving import resolve_servers
from toolpost.base.redaction import REDACTED, conceal_known
from toolpost.base.server_name import usable_name
from toolpost.contracts.contract import check_plugin_name
from toolpost.contracts.errors import BadConfiguration
from toolpost.credentials.keychain import write_keychain
from toolpost.credentials.values import CallerValue
from toolpost.net.network import DIRECT
from toolpost.settings import Config, ServerSettings, load_config
from toolpost.settings.loader import config_schema
from toolpost.settings.servers import ResolvedServer
from toolpost.upstreams.spec import ServerSpec

EVERYTHING = """
[servers.local_one]
command = "npx"
args = ["-y", "server"]
env = {TOKEN = "${TOKEN}", OWN = "a ${caller:KEY} z"}
credentials = "caller"
cwd = "sub"
transport = "stdio"
tags = ["a", "b"]
allow = ["get_*"]
deny = ["get_secret"]
timeout_s = 3
unknown_arguments = "reject"
results = "warn"
extensions = false
client_meta = false
client_extensions = {"com.example/ui" = {dark = true}}
unlisted_resources = true
contracts = "enforce"
strategy = "per_session"
era = "handshake"
min_ready = 1
idle_s = 10
relist_s = 30
enabled = true

[servers.remote]
url = "https://example.com/mcp"
headers = {Authorization = "Bearer ${TOKEN}", X-Key = "${caller:KEY}"}
transport = "sse"
"""


def loaded(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "toolpost.toml"
    path.write_text(text)
    return load_config(path)


def resolved(tmp_path: Path, text: str, **environment: str) -> ResolvedServer:
    (server,) = resolve_servers(loaded(tmp_path, text), environment).values()
    return server


def test_every_setting_is_read_and_resolved(tmp_path: Path) -> None:
    config = loaded(tmp_path, EVERYTHING)
    servers = resolve_servers(config, {"TOKEN": "t0ps3cret"})

    assert servers["local_one"] == ResolvedServer(
        name="local_one",
        command=("npx", "-y", "server"),
        env={"TOKEN": "t0ps3cret"},
        cwd=tmp_path / "sub",
        url=None,
        headers={},
        own_env={"OWN": ("a ", CallerValue("KEY"), " z")},
        own_headers={},
        credentials="caller",
        network=DIRECT,
        auth=None,
        transport="stdio",
        tags=frozenset({"a", "b"}),
        allow=("get_*",),
        deny=("get_secret",),
        timeout_s=3.0,
        unknown_arguments="reject",
        contracts="enforce",
        results="warn",
        extensions=False,
        client_meta=False,
        client_extensions={"com.example/ui": {"dark": True}},
        unlisted_resources=True,
        strategy="per_session",
        era="handshake",
        min_ready=1,
        idle_s=10.0,
        relist_s=30.0,
    )
    assert servers["remote"].own_headers == {"X-Key": (CallerValue("KEY"),)}
    assert servers["remote"].credentials == "caller"
    assert servers["remote"].headers == {"Authorization": "Bearer t0ps3cret"}
    assert (servers["remote"].command, servers["remote"].transport) == (None, "sse")
    assert "t0ps3cret" not in repr(servers)
    assert ServerSpec(**vars(servers["local_one"])).command == ("npx", "-y", "server")
    assert set(tomllib.loads(EVERYTHING)["servers"]["local_one"]) | {"url", "headers", "network", "auth"} == set(
        ServerSettings.__struct_fields__
    )


def test_the_published_schema_knows_servers() -> None:
    schema = jsonschema_rs.validator_for(config_schema())

    schema.validate(tomllib.loads(EVERYTHING))
    assert not schema.is_valid({"servers": {"a__b": {"command": "x"}}})
    assert not schema.is_valid({"servers": {"a": {"comand": "x"}}})
    assert schema.is_valid({"servers": {"a": {"command": "x", "strategy": "${STRATEGY}"}}})
    assert not schema.is_valid({"servers": {"a": {"command": "x", "strategy": "sharde"}}})


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
        ('[servers.git]\ncommand = "x"\nargs = "y"', "line 3: servers.git.args must be a list, not a string"),
        ('[servers.git]\ncommand = "x"\nargs = [1]', "servers.git.args[0] must be a string"),
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
        ('[servers.git]\nurl = "http://x"\ntransport = "ws"', "servers.git.transport: there is no `ws` to choose"),
        ('[servers.git]\nurl = "ftp://x"', "servers.git.url is not a valid HTTP URL"),
        ('[servers.git]\ncommand = "x"\nmin_ready = -1', "servers.git.min_ready must be an integer >= 0"),
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

    assert resolve_servers(config, {}) == {}
    with pytest.raises(BadConfiguration, match=r"servers\.a\.command: the environment variable NOPE"):
        config.resolve_server("a", {})


def test_missing_variable_is_named_and_no_value_is_told(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[servers.a]\ncommand = "x"\nenv = {A = "hunter2", B = "pre${MISSING}hunter3"}')
    with pytest.raises(BadConfiguration) as refused:
        resolve_servers(config, {"OTHER": "hunter4"})

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

    assert resolve_servers(config, {"V": "http://v"})["a"].name == "a"
    with pytest.raises(BadConfiguration, match=re.escape(f"servers.a.{key}: the environment variable")):
        resolve_servers(config, {})


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
        resolve_servers(config, {})

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
        resolve_servers(config, {"V": value})

    assert refused.value.message.startswith("servers.a.")
    assert not value or value not in str(refused.value.as_object())


def test_reprs_hold_no_values(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        '[servers.a]\ncommand = "x"\nargs = ["--key", "hunter1"]\nenv = {A = "hunter2"}\n'
        '[servers.b]\nurl = "http://u:hunter3@x/hunter4?k=hunter5"\nheaders = {A = "hunter6"}',
    )

    assert "hunter" not in repr(config)
    assert "hunter" not in repr(resolve_servers(config, {}))


@pytest.mark.parametrize("name", ["a", "A-1", "a_b", "-", "a__b", "_a", "a_", "a b", "", "ä", "a\n"])
def test_names_are_those_that_tools_can_carry(name: str, tmp_path: Path) -> None:
    def is_accepted_here() -> bool:
        try:
            resolve_servers(Config(servers={name: ServerSettings(command="x")}), {})
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


def test_values_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "token").write_text(" t0p-s3cret-from-a-file\n")
    (tmp_path / "absolute").write_text("another ${NOT_EXPANDED}")
    headers = f'{{A = "Bearer ${{file:secrets/token}}", B = "${{file:{tmp_path}/absolute}}"}}'
    text = f'[servers.x]\nurl = "http://localhost/"\nheaders = {headers}'
    assert resolved(tmp_path, text).headers == {"A": "Bearer t0p-s3cret-from-a-file", "B": "another ${NOT_EXPANDED}"}
    # It is a secret, whatever the header is called.
    assert conceal_known("it said t0p-s3cret-from-a-file!") == f"it said {REDACTED}!"
    with pytest.raises(
        BadConfiguration, match=r"servers\.x\.env\.A: cannot read the file nothing: No such file"
    ) as raised:
        resolved(tmp_path, '[servers.x]\ncommand = "x"\nenv = {A = "${file:nothing}"}')
    assert raised.value.hint


@pytest.mark.wire  # keyring looks for what there is, by a process
@pytest.mark.usefixtures("keychain")
def test_values_come_from_the_keychain(tmp_path: Path) -> None:
    write_keychain("github", "ann/token", "t0p-s3cret-from-the-keychain")
    text = '[servers.x]\ncommand = "x"\nenv = {A = "${keychain:github/ann/token}"}'
    assert resolved(tmp_path, text).env == {"A": "t0p-s3cret-from-the-keychain"}
    with pytest.raises(BadConfiguration, match=r"servers\.x\.env\.A: the keychain has no entry github/bob") as raised:
        resolved(tmp_path, '[servers.x]\ncommand = "x"\nenv = {A = "${keychain:github/bob}"}')
    assert raised.value.hint == "keyring set github bob"


@pytest.mark.wire
def test_without_a_keychain_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring
    from keyring.backends.fail import Keyring

    before = keyring.get_keyring()
    keyring.set_keyring(Keyring())  # type: ignore[no-untyped-call]  # what keyring uses where there is none
    try:
        with pytest.raises(
            BadConfiguration, match=r"servers\.x\.env\.A: The keychain cannot be used: No recommended backend"
        ):
            resolved(tmp_path, '[servers.x]\ncommand = "x"\nenv = {A = "${keychain:a/b}"}')
    finally:
        keyring.set_keyring(before)
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(BadConfiguration, match="needs the package keyring") as raised:
        resolved(tmp_path, '[servers.x]\ncommand = "x"\nenv = {A = "${keychain:a/b}"}')
    assert raised.value.hint == "pip install 'toolpost[keychain]'"


def test_values_of_callers_are_for_headers_and_variables(tmp_path: Path) -> None:
    server = resolved(
        tmp_path, '[servers.x]\ncommand = "x"\nenv = {A = "$${caller:K}", B = "${V}-${caller:K.1}"}', V="${caller:Z}"
    )
    # What is escaped, or comes out of a variable, is text.
    assert server.env == {"A": "${caller:K}"}
    assert server.own_env == {"B": ("${caller:Z}", "-", CallerValue("K.1"))}
    for text in (
        'command = "x"\nargs = ["${caller:K}"]',
        'url = "http://localhost/${caller:K}"',
        'command = "${caller:K}"',
    ):
        with pytest.raises(BadConfiguration, match="can be used in headers and in env only"):
            resolved(tmp_path, f"[servers.x]\n{text}")
    shared = resolved(tmp_path, '[servers.x]\ncommand = "x"\ncredentials = "shared"\nenv = {A = "${caller:K}"}')
    assert shared.credentials == "shared"
    assert resolved(tmp_path, '[servers.x]\ncommand = "x"').credentials == "shared"
    assert resolved(tmp_path, '[servers.x]\ncommand = "x"\ncredentials = "caller"').credentials == "caller"


@attack(
    "server",
    "names an authorization server of its own, to get the secrets that are configured for the true one",
    "settings with a secret are refused without `auth.issuer`, and a server that names another issuer is too",
)
@pytest.mark.parametrize(
    "auth",
    [
        'client_id = "me"\nclient_secret = "s3cret"',
        'type = "client_credentials"\nclient_id = "me"\nclient_secret = "s3cret"',
        'type = "client_credentials"\nclient_id = "me"\nprivate_key = "s3cret"',
        'type = "token_exchange"\nsubject_token = "s3cret"',
        'type = "jwt_bearer"\nassertion = "s3cret"',
        'type = "id_jag"\nsubject_token = "x"\nidp_token_url = "https://idp.example/"\nclient_secret = "s3cret"',
    ],
)
def test_a_secret_needs_the_issuer_that_may_get_it(auth: str, tmp_path: Path) -> None:
    file = tmp_path / "toolpost.toml"
    text = f'[servers.up]\nurl = "https://mcp.example/mcp"\n[servers.up.auth]\n{auth}\n'
    file.write_text(text)
    with pytest.raises(BadConfiguration, match=r"auth\.issuer is missing") as refusal:
        load_config(file).resolve_server("up")
    file.write_text(f'{text}issuer = "https://as.example"\n')
    resolved = load_config(file).resolve_server("up")

    assert "s3cret" not in refusal.value.message
    assert resolved.auth is not None
    assert resolved.auth.issuer == "https://as.example"


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ('[modes]\nmode = "read-only"', "modes.mode: there is no `read-only` to choose", "did you mean `readonly`?"),
        ('[servers.a]\nurl = "http://x"\n[servers.a.auth]\ntype = "magic"', "servers.a.auth.type", "choose one of: "),
        (
            '[callers.a]\ntoken = "${A}"\nmode = "rw"',
            "callers.a.mode: there is no `rw`",
            "choose one of: full, ",
        ),
        ('[discovery]\nmode = "every"', "discovery.mode: there is no `every`", "choose one of: "),
        ('[models.m]\nurl = "http://x"\napi = "chats"', "models.m.api: there is no `chats`", "did you mean `chat`?"),
    ],
)
def test_a_word_that_is_no_choice_is_answered_with_those_that_are(
    text: str, says: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "toolpost.toml").write_text(text)
    with pytest.raises(BadConfiguration) as refused:
        load_config(tmp_path / "toolpost.toml")

    assert says in refused.value.message
    assert (refused.value.hint or "").startswith(hint)
