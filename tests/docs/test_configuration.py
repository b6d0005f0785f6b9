"""The configuration page and the published schema are what the code says, and both hold for a real file."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.docs import generate
from tests.docs.blocks import ROOT, blocks_of
from toolpost.contracts.errors import BadConfiguration
from toolpost.settings import Config, load_config
from toolpost.settings.section import plain_values

PAGE = ROOT / "docs/reference/configuration.md"
SCHEMA = json.loads((ROOT / "schemas/toolpost.schema.json").read_text())

EVERYTHING = """

[http]
public_url = "https://tools.example.com"
listen = "127.0.0.1:9000"
token = "${file:token}"
allowed_hosts = ["tools.example.com"]
allowed_origins = ["https://console.example.com"]
body_limit_bytes = 65536
trusted_proxies = ["10.0.0.0/8", "192.0.2.7"]
head_timeout_s = 5
body_timeout_s = 20
tags = ["team"]
tools = ["github__*", "!github__delete_*"]

[http.oauth]
others = "allow"

[http.oauth.issuers.example]
issuer = "https://login.example.com"
scopes = ["tools"]

[stdio]
tags = ["team"]
tools = ["*"]

[callers]

[store]
url = "sqlite:.toolpost/toolpost.db"
pool = 4

[network]
ca_file = "corp.pem"
client_cert = "client.crt"
client_key = "client.key"
trust = "system"
proxy = "http://proxy.example:3128"
no_proxy = ["localhost", ".corp.example"]

[credentials]
key = "file:secrets/credentials.key"

[limits]
timeout_s = 1.5
share = 0.25
calls = 10
waiting = 2
threads = 4
instances = 5
grace_s = 1
instructions = 100

[workspace]
roots = [".", "../library"]
index_dir = ".toolpost/workspace"
file_limit_bytes = 1000000
allow_secret_files = ["certs/*.pem"]
watch = true
settle_s = 0.5

[plugins]
load = ["notes:plugin"]
bundled = ["time", "bus"]
disable = ["time"]
installed = false
only = "time"
tags = {time = ["safe"]}

[middleware]
load = ["policy:no_passwords"]

[discovery]
mode = "automatic"

[discovery.reranker]
models = ["small"]
timeout_s = 1

[bus]
lease_s = 60
lease_without_renewal_s = 600
attempts = 5
capacity = 100
beads = "off"

[tasks]
ttl_s = 60
after_s = 0.5

[login]
enabled = true
registration = false
client_documents = false
access_s = 600
login_s = 43200
provider = {issuer = "https://sso.example.com", client_id = "toolpost", client_secret = "${SECRET}", scopes = ["openid"]}

[console]
enabled = false
roles = {viewer = ["staff"], operator = ["ops"], administrator = ["sre"], claim = "groups", session_s = 3600}

[results]
limit_tokens = 5000
blob_bytes = 1000000
keep_s = 600
keep_mb = 100
[results.rules.logs]
tools = ["logs__*", "!logs__small"]
callers = ["ada"]
limit_tokens = 1000
[results.rules.scripts]
callers = ["ci"]
limit_tokens = 0
[trail]
sessions = "all"
decisions = { bus__worker_done = "bead_id" }
deciding_agents = ["*"]
keep_days = 365

[modes]
mode = "readonly"
confirmed = ["github"]
minimal = ["time__*"]

[log]
keep_mb = 10

[audit]
days = 90
mb = 500
archive = "audit-archive"
sample = 0.05
keep_days = 30

[approvals]
roles = {accounting = ["ann", "ben"]}
keys = {}
passphrase_hash = "scrypt:15:8:1:AAAAAAAAAAAAAAAAAAAAAA:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
keep_days = 90

[approvals.rules.payments]
tools = ["payments__*"]
tags = ["money"]
annotations = {destructiveHint = true}
arguments = {required = ["amount"]}
voters = ["role:accounting", "cli"]
draw = 2
votes = 2
expires_s = 60
requester_may_vote = true
elicit = true
wait = true

[peers]

[servers]

[agents]
default = "helper"
sessions = 4
idle_s = 60
history_tokens = 2000

[models]

[router]
attempt_s = 10
sampling = true
weights = {domain = 1, skill = 1, context = 1, cost = 2, latency = 1, reliability = 1, preference = 1}

[groups]

[export]

[telemetry]
enabled = true
endpoint = "http://collector:4318"
protocol = "http/protobuf"
sample = 0.5
content = false

[apis]
"""


def test_generated_pages_are_up_to_date() -> None:
    old = [path for path, text in generate.pages().items() if not path.exists() or path.read_text() != text]

    assert old == [], f"run `{generate.COMMAND}`"


def test_the_first_page_is_short_and_the_second_has_the_rest() -> None:
    first, second = (page.read_text() for page in (PAGE, PAGE.with_name("configuration-advanced.md")))
    rows = [len(re.findall(r"^\| `[a-z_]+` \|", text, re.MULTILINE)) for text in (first, second)]

    assert rows[0] <= generate.CORE_LIMIT
    assert "| `timeout_s` |" in first
    assert "| `body_limit_bytes` |" in second
    for struct in ("servers.NAME.auth", "network"):
        assert f"those of `[{struct}]`" in first + second


def test_the_published_schema_knows_every_setting(tmp_path: Path) -> None:
    file = tmp_path / "toolpost.toml"
    file.write_text(EVERYTHING)
    given = tomllib.loads(EVERYTHING)

    load_config(file)
    jsonschema_rs.validator_for(SCHEMA).validate(given)
    assert {name: set(part) for name, part in given.items() if isinstance(part, dict)} == {
        name: set(part) for name, part in _defaults().items() if isinstance(part, dict)
    }


def test_the_example_on_the_page_is_valid(tmp_path: Path) -> None:
    (example,) = [block for block in blocks_of(PAGE) if block.language == "toml"]
    file = tmp_path / "toolpost.toml"
    file.write_text(example.text)

    jsonschema_rs.validator_for(SCHEMA).validate(tomllib.loads(example.text))
    assert load_config(file).limits.waiting == 16


@pytest.mark.parametrize(
    "wrong",
    [
        "[limits]\ntimeout = 3",
        "[limits]\ntimeout_s = 0",
        "[limits]\nshare = 0",
        "[limits]\nshare = 1.5",
        "[http]\nbody_limit_bytes = 1",
        '[plugins]\nload = "notes"',
    ],
)
def test_the_schema_refuses_what_the_server_refuses(wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "toolpost.toml"
    file.write_text(wrong)

    assert not jsonschema_rs.validator_for(SCHEMA).is_valid(tomllib.loads(wrong))
    with pytest.raises(BadConfiguration):
        load_config(file)


def test_every_variable_on_the_page_is_read_somewhere() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    read = set(re.findall(r'(?:environ\.get\(|envvar=)"(\w+)"', sources))

    assert set(generate.ENVIRONMENT) <= read
    assert {name for name in read if name.startswith("TOOLPOST_")} <= set(generate.ENVIRONMENT)


def _defaults() -> dict[str, Any]:
    return plain_values(Config())
