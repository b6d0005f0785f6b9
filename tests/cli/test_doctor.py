"""`toolpost doctor`: real servers and plugins looked at, and what some client would stumble over said before it does."""

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.conftest import PLUGIN, Ended, Run
from tests.cli.test_servers import SECRET, settings
from tests.upstreams.test_npm_servers import PLACE, missing
from tests.ways import ROOT
from toolpost.parts.agents.testing import acp_agent_command
from toolpost.settings.locations import state_folder

BEHAVIOURS = ("--plugin", "tests.plugins.behaviours:plugin")


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., None]:
    def configured(*more: str, **kinds: str) -> None:
        (tmp_path / "toolpost.toml").write_text("\n".join([*more, settings(**kinds)]))

    return configured


def group(ended: Ended, name: str) -> dict[str, Any]:
    return next(found for found in ended.json["groups"] if found["name"] == name)


def checks(ended: Ended, name: str) -> dict[str, list[str | None]]:
    """Return the tools that each check found something about."""
    found: dict[str, list[str | None]] = {}
    for finding in group(ended, name)["findings"]:
        if finding["level"] in ("warning", "problem"):
            found.setdefault(finding["check"], []).append(finding.get("tool"))
    return found


def test_all_is_well(configured: Any, run: Run, tmp_path: Path) -> None:
    configured(fine="fine")
    ended = run("doctor", "--with", "time")

    assert ended.code == 0
    assert ended.err == "checking 1 server\n(1 of 1) fine: ok\n"
    assert ended.out.endswith("\nno problems found\n")
    assert "server fine\n  ok       ready in " in ended.out
    assert "MCP 2025-06-18 (handshake era); 1 tool, 1 with an output schema\n" in ended.out
    assert "plugin time\n  ok       loaded; 2 tools" in ended.out
    assert "store at" in ended.out
    assert not (tmp_path / ".toolpost").exists()


@pytest.mark.wire
def test_what_some_client_stumbles_over_is_a_warning(configured: Any, invoke: Run) -> None:
    configured(strange="strange")
    ended = invoke("doctor", "strange", "--json")
    strict = invoke("doctor", "strange", "--strict")

    assert ended.code == 0
    assert ended.json["ok"] is True
    assert checks(ended, "strange") == {
        "description-missing": ["silent", "mute"],
        "description-long": ["talks"],
        "name-changed": ["dotted.name"],
        "name-long": ["n" * 52],
        "root-combined": ["either"],
        "root-reference": ["refers"],
        "dialect": ["old"],
        "format-unknown": ["formats"],
        "nested-deep": ["deep"],
        "recursive": ["tree"],
        "argument-name": ["spaced"],
        "array-open": ["lists"],
        "type-list": ["types"],
        "enum-mixed": ["numbers"],
    }
    places = [finding.get("place") for finding in group(ended, "strange")["findings"]]
    assert {"inputSchema/properties/a", "inputSchema/properties/a/type", "inputSchema/properties/a/enum"} <= set(places)
    assert group(ended, "strange")["withOutputSchema"] == 0
    assert strict.code == 1
    assert "  warning  `silent`, `mute`: no description" in strict.out
    assert "  warning  `formats`, inputSchema/properties/a/format: the format `phone`" in strict.out
    assert strict.out.endswith("\n0 problems, 15 warnings\n")


@pytest.mark.wire
def test_refused_tool_is_a_problem_with_place_and_reason(configured: Any, invoke: Run) -> None:
    configured(broken="broken")
    ended = invoke("doctor", "broken", "--json")

    [finding] = [found for found in group(ended, "broken")["findings"] if found["level"] == "problem"]
    assert ended.code == 1
    assert (finding["check"], finding["tool"], finding["place"]) == (
        "schema-invalid",
        "bad",
        "inputSchema/properties/a/type",
    )
    assert finding["message"] == 'refused: "nonsense" is not a JSON Schema type'
    assert group(ended, "broken")["tools"] == 1


@pytest.mark.wire
def test_server_that_does_not_start_is_told_of_without_its_secret(configured: Any, invoke: Run) -> None:
    configured(dies="dies", fine="fine")
    ended = invoke("doctor", "dies", "fine")

    assert ended.code == 1
    assert "server dies\n  problem  does not start: it ended with exit code 1" in ended.out
    assert "token (redacted)" in ended.out
    assert "may be started again" not in ended.out
    assert "server fine\n  ok " in ended.out
    assert SECRET not in ended.out + ended.err


@pytest.mark.wire
def test_server_objects_are_looked_at_too(invoke: Run, tmp_path: Path) -> None:
    head = "from mcp.server.mcpserver import MCPServer\n\n"
    good = f"{head}mcp = MCPServer('good')\n\n@mcp.tool()\ndef add(a: int) -> int:\n    'Add.'\n    return a\n"
    bad = f"{head}def fail(_server):\n    raise RuntimeError('no database')\n\nmcp = MCPServer('bad', lifespan=fail)\n"
    (tmp_path / "good_object.py").write_text(good)
    (tmp_path / "bad_object.py").write_text(bad)
    ended = invoke("doctor", "good", "bad", "--plugin", "good_object:mcp", "--plugin", "bad_object:mcp")
    assert ended.code == 1, ended.err
    assert "started; 1 tool" in ended.out
    assert f"RuntimeError: no database ({tmp_path / 'bad_object.py'}:4)" in ended.out


@pytest.mark.wire
def test_faults_of_the_configuration_are_told_by_place(configured: Any, invoke: Run) -> None:
    configured(
        "[servers.unset]\ncommand = 'x'\nargs = ['${NOT_SET_HERE}']",
        "[servers.gone]\ncommand = './no-such-program'",
        "[servers.off]\ncommand = 'x'\nenabled = false",
        "[servers.choosy]\nurl = 'http://127.0.0.1:1/mcp'",
    )
    ended = invoke("doctor", "unset", "gone", "off", "choosy", "--json")

    assert ended.code == 1
    assert list(checks(ended, "unset")) == ["configuration"]
    assert "NOT_SET_HERE is not set" in group(ended, "unset")["findings"][0]["message"]
    assert list(checks(ended, "gone")) == ["command-missing"]
    assert "servers.gone.command" in group(ended, "gone")["findings"][0]["hint"]
    assert checks(ended, "off") == {}
    assert list(checks(ended, "choosy")) == ["start"]


def test_file_that_cannot_be_read_is_a_finding_too(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text("[servers.x]\ncomand = 'y'\n")
    ended = invoke("doctor", "--json")

    assert ended.code == 1
    [finding] = ended.json["groups"][0]["findings"]
    assert finding["message"].endswith("unknown setting `servers.x.comand`")
    assert finding["hint"] == "did you mean `servers.x.command`?"


def test_launcher_that_is_missing_is_named_with_where_to_get_it(configured: Any, invoke: Run, tmp_path: Path) -> None:
    configured("[servers.js]\ncommand = 'npx'\nargs = ['-y', 'x']\nenv = {PATH = '/nowhere'}")
    ended = invoke("doctor", "js")

    assert ended.code == 1
    assert "  problem  the command `npx` was not found" in ended.out
    assert "hint: install Node.js: https://nodejs.org" in ended.out


@pytest.mark.wire
def test_pattern_that_matches_nothing_and_talk_on_stdout(configured: Any, invoke: Run) -> None:
    configured(noisy="noisy", none="none")
    path = Path("toolpost.toml")
    path.write_text(path.read_text().replace("[servers.noisy]", "[servers.noisy]\nallow = ['echo']\ndeny = ['ecko']"))
    ended = invoke("doctor", "noisy", "none", "--json")

    assert list(checks(ended, "noisy")) == ["protocol-errors", "pattern-unused"]
    assert list(checks(ended, "none")) == ["no-tools"]


@pytest.mark.wire
def test_more_tools_than_models_take(configured: Any, invoke: Run) -> None:
    configured(many="many")
    ended = invoke("doctor", "--json")
    shown = invoke("doctor", "many")

    assert "many-tools" in [finding["check"] for finding in ended.json["groups"][0]["findings"]]
    assert ended.code == 0
    assert shown.out.endswith("\nno problems found\n")


def test_plugins_are_looked_at(invoke: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    failing = ("--plugin", "plugin_for_tests:failing", "--plugin", "plugin_for_tests:missing")
    ended = invoke("doctor", *PLUGIN, *BEHAVIOURS, "--plugin", "plugin_for_tests:partly", *failing, "--json")

    assert ended.code == 1
    assert group(ended, "does")["version"] == "2.1.0"
    assert group(ended, "does")["findings"][0]["level"] == "ok"
    assert checks(ended, "partly") == {"schema-invalid": ["refused"]}
    assert list(checks(ended, "failing")) == ["start"]
    assert "no licence" in json.dumps(group(ended, "failing"))
    assert list(checks(ended, "plugin_for_tests:missing")) == ["start"]


def test_name_that_nobody_has_is_met_with_the_nearest(configured: Any, invoke: Run) -> None:
    configured(fine="fine")
    ended = invoke("doctor", "fien")

    assert ended.code == 2
    assert ended.err == "error: unknown server, plugin or agent `fien`\nhint: did you mean `fine`?\n"


def test_results_that_broke_their_schema_are_remembered(invoke: Run) -> None:
    invoke("call", "demo__lie", *PLUGIN)
    invoke("call", "demo__lie", *PLUGIN)
    ended = invoke("doctor", "--json")

    findings = {finding["check"]: finding for finding in ended.json["groups"][0]["findings"]}
    assert findings["audit"]["message"] == "the store is writable; all 2 audit entries are intact"
    assert findings["results-broken"]["message"].startswith("`demo__lie` violated its own output schema in 2")


@pytest.mark.wire
def test_results_that_broke_their_schema_are_told_at_their_server(configured: Any, invoke: Run, tmp_path: Path) -> None:
    configured(liar="liar")
    called = invoke("call", "liar__echo", "text=7")
    ended = invoke("doctor", "liar", "--json")
    strict = invoke("doctor", "liar", "--strict")

    assert called.code == 1
    assert checks(ended, "liar") == {"results-broken": ["echo"]}
    assert "in 1 recorded call" in next(f["message"] for f in group(ended, "liar")["findings"] if f.get("tool"))
    assert (ended.code, strict.code) == (0, 1)


@pytest.mark.wire
def test_a_name_that_starts_with_a_digit(configured: Any, invoke: Run) -> None:
    configured("[servers]", **{"7up": "fine"})
    ended = invoke("doctor", "7up", "--json")

    assert checks(ended, "7up") == {"name-start": ["echo"]}


@pytest.mark.wire
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_servers_of_npm(invoke: Run, tmp_path: Path) -> None:
    """Real servers of both kinds: one whose tools promise what they return, and one that has all there is."""
    lines = [
        f"[servers.{name}]\ncommand = 'node'\nargs = {json.dumps([str(PLACE / package / 'dist/index.js'), *more])}"
        for name, package, more in (
            ("everything", "server-everything", ["stdio"]),
            ("files", "server-filesystem", [str(tmp_path)]),
        )
    ]
    (tmp_path / "toolpost.toml").write_text("\n".join(lines))
    ended = invoke("doctor", "everything", "files", "--json")

    assert ended.code == 0
    assert ended.json["problems"] == 0
    assert group(ended, "files")["withOutputSchema"] == group(ended, "files")["tools"] > 10
    assert {group(ended, name)["version"] for name in ("everything", "files")} == {"2025-11-25"}


def test_record_that_was_tampered_with_is_a_problem(invoke: Run, tmp_path: Path) -> None:
    invoke("call", "demo__fail", *PLUGIN)
    connection = sqlite3.connect(state_folder(tmp_path) / "toolpost.db")
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    for name in names:
        connection.execute(f"DROP TRIGGER {name}")
    with connection:
        connection.execute("UPDATE audit SET caller = 'somebody'")
    connection.close()
    ended = invoke("doctor")

    assert ended.code == 1
    assert "  problem  audit entry 1 was changed" in ended.out


def test_open_to_all_without_a_token_is_a_problem(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('http.listen = "0.0.0.0:8420"\n')
    ended = invoke("doctor")

    assert ended.code == 1
    assert "  problem  listening on `0.0.0.0` requires a token" in ended.out


def test_interrupt_ends_what_was_started(configured: Any, start: Any) -> None:
    configured("[servers.slow]\ncommand = 'sleep'\nargs = ['600']")
    process: subprocess.Popen[str] = start("doctor", "slow")
    children: list[psutil.Process] = []
    until = time.monotonic() + 60
    while not any("sleep" in child.name() for child in children) and time.monotonic() < until:
        time.sleep(0.05)
        children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    gone, alive = psutil.wait_procs(children, 10)

    assert process.returncode == 130
    assert "cancelled" in err
    assert gone
    assert not alive


@pytest.mark.wire
def test_server_from_the_outside_world(invoke: Run, tmp_path: Path) -> None:
    beside = Path(sys.executable).with_name("mcp-server-time")
    found = str(beside) if beside.exists() else shutil.which("mcp-server-time")
    if found is None:
        pytest.skip("mcp-server-time is not installed")
    (tmp_path / "toolpost.toml").write_text(f"[servers.clock]\ncommand = {json.dumps(found)}\n")
    ended = invoke("doctor", "clock", "--json")

    assert ended.code == 0
    assert group(ended, "clock")["tools"] == 2
    assert group(ended, "clock")["readyMs"] > 0


@pytest.mark.parametrize(
    ("http", "expected"),
    [
        ('allowed_hosts = ["tools.example"]', ["http.allowed_hosts says that there is a proxy"]),
        ('trusted_proxies = ["10.0.0.0/8"]', ["http.trusted_proxies says that there is a proxy"]),
        ('allowed_hosts = ["tools.example"]\ntoken = "${file:token}"', []),
        ('allowed_hosts = ["localhost"]', []),
    ],
)
def test_a_proxy_in_front_of_a_gateway_without_a_token_is_found(
    invoke: Run, tmp_path: Path, http: str, expected: list[str]
) -> None:
    (tmp_path / "token").write_text("the-right-token-of-32-characters")
    (tmp_path / "toolpost.toml").write_text(f"[http]\n{http}\n")
    ended = invoke("doctor", "--json")
    found = [f for group in ended.json["groups"] for f in group["findings"] if f["check"] == "access"]

    assert [(f["level"], f["message"].partition(",")[0]) for f in found] == [("warning", text) for text in expected]


def test_limits_by_a_tag_that_nothing_carries_are_found(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "ada").write_text("ada-token")
    (tmp_path / "toolpost.toml").write_text(
        '[plugins]\ntags = {time = ["reading"]}\n[stdio]\ntags = ["reading"]\n'
        '[callers.ada]\ntoken = "${file:ada}"\ntags = ["raeding"]\n[callers.bob]\ntoken = "${file:gone}"\n'
    )
    ended = invoke("doctor", "--json")
    found = [f for group in ended.json["groups"] for f in group["findings"] if f["check"] == "access"]

    assert [(f["level"], f["message"]) for f in found][1:] == [
        ("warning", "callers.ada.tags: no server or plugin has the tag `raeding`")
    ]
    assert found[0]["level"] == "problem"
    assert "callers.bob.token: cannot read" in found[0]["message"]
    assert found[1]["hint"] == "did you mean `reading`?"
    assert "ada-token" not in ended.out


@pytest.mark.wire
def test_agents_are_opened_and_ended_without_a_word(invoke: Run, tmp_path: Path) -> None:
    def agent(name: str, *options: str) -> str:
        command, *args = acp_agent_command(*options)
        return f"[agents.{name}]\ncommand = '{command}'\nargs = {json.dumps(args)}\n"

    told = [
        agent("fine"),
        agent("resumes", "--sessions", str(tmp_path / "sessions")),
        agent("dead", "--exit"),
        agent("hung", "--hang"),
        "[agents.gone]\ncommand = 'no-such-agent'\n",
        "[agents.unset]\ncommand = 'x'\nenv = { KEY = '${NOT_SET_HERE}' }\n",
        "[agents.off]\ncommand = 'x'\nenabled = false\n",
        "[agents]\ndefault = 'fin'\n",
    ]
    (tmp_path / "toolpost.toml").write_text("".join(told))
    ended = invoke("doctor", "--json")
    alone = invoke("doctor", "fine")

    assert (ended.code, alone.code) == (1, 0)
    found = {each["name"]: each["findings"][0] for each in ended.json["groups"] if each["kind"] == "agent"}
    assert {name: (finding["level"], finding["check"]) for name, finding in found.items()} == {
        "fine": ("ok", "start"),
        "resumes": ("ok", "start"),
        "dead": ("problem", "start"),
        "hung": ("problem", "start"),
        "gone": ("problem", "command-missing"),
        "unset": ("problem", "configuration"),
        "off": ("note", "disabled"),
    }
    assert "can resume a session" in found["resumes"]["message"]
    assert found["dead"]["lines"] == ["cannot start like this"]
    assert found["gone"]["hint"].startswith("install it, or set agents.gone.command")
    (default,) = [f for f in ended.json["groups"][0]["findings"] if f["level"] == "problem"]
    assert default["hint"] == "did you mean `fine`?"
    assert alone.out.startswith("agent fine\n  ok       ready in ")


def test_groups_of_servers(configured: Any, run: Run) -> None:
    configured('[groups.pair]\nservers = ["one", "two"]', one="fine", two="fine")
    ended = run("doctor", "--json")

    assert ended.code == 0
    assert [each["name"] for each in ended.json["groups"][1:]] == ["one", "two"]
    assert "`pair`: one, two" in [each["message"] for each in ended.json["groups"][0]["findings"]]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ('[approvals.rules.x]\nvoters = ["role:gone"]', "approvals.rules.x.voters: there is no role `gone`"),
        ('[discovery.reranker]\nmodels = ["gone"]', "discovery.reranker.models: no model of [models] with a `url` is"),
        (
            '[export.siem]\nkind = "webhook"\nurl = "https://x.example"\nsecret = "${NOT_SET}"',
            "export.siem.secret",
        ),
    ],
)
def test_what_keeps_the_gateway_from_starting_is_one_finding_among_others(
    configured: Any, invoke: Run, setting: str, problem: str
) -> None:
    configured(setting)
    ended = invoke("doctor", "--json")
    findings = {each["level"]: each["message"] for each in ended.json["groups"][0]["findings"]}

    assert ended.code == 1
    assert ended.json["problems"] == 1
    assert findings["problem"].startswith(problem)
    assert "ok" in findings


def test_what_keeps_a_part_closed_is_no_fault_of_the_servers(configured: Any, run: Run) -> None:
    configured('[approvals.rules.x]\nvoters = ["role:gone"]', fine="fine")
    ended = run("doctor", "--json")

    assert ended.json["problems"] == 1
    assert group(ended, "fine")["findings"][0]["level"] == "ok"


@pytest.mark.parametrize(
    ("setting", "level", "says"),
    [
        ('ca_file = "gone.pem"', "problem", "gone.pem cannot be used"),
        ('proxy = "ftp://x"', "problem", "proxy is not the URL of a proxy"),
        ('proxy = "http://ann:secret@proxy.example:3128"', "ok", "connections go through proxy.example"),
    ],
)
def test_how_connections_are_made(tmp_path: Path, invoke: Run, setting: str, level: str, says: str) -> None:
    (tmp_path / "toolpost.toml").write_text(f"[network]\n{setting}\n")
    ended = invoke("doctor", "--json")
    (found,) = [each for each in ended.json["groups"][0]["findings"] if each["check"] == "network"]

    assert (found["level"], says in found["message"]) == (level, True)
    assert "secret" not in ended.out


def test_a_client_file_that_is_not_used_is_mentioned(invoke: Run, tmp_path: Path) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text('{"mcpServers": {"toolpost": {"command": "toolpost", "args": ["serve", "--stdio"]}}}')
    without_servers = invoke("doctor")
    path.write_text('{"mcpServers": {"maps": {"command": "not-started"}}}')
    ended = invoke("doctor")
    (tmp_path / "toolpost.toml").write_text("")

    assert ".mcp.json" not in without_servers.out
    assert ".mcp.json is here, and its servers are not used" in ended.out
    assert ".mcp.json" not in invoke("doctor").out


def test_exports_and_retention_of_the_audit(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        '[audit]\ndays = 30\n[export.file]\npath = "audit.jsonl"\n'
        '[export.open]\nkind = "otlp"\nurl = "http://collector.example/v1/logs"\nheaders = {X-Key = "token-of-it"}\n'
        '[export.hook]\nkind = "webhook"\nurl = "https://siem.example/in"\nsecret = "${NOT_SET_ANYWHERE}"\n'
    )
    found = [each for each in invoke("doctor", "--json").json["groups"][0]["findings"] if each["check"] == "export"]
    (tmp_path / "toolpost.toml").write_text("[audit]\ndays = 30\n")
    alone = [each["check"] for each in invoke("doctor", "--json").json["groups"][0]["findings"]]

    assert [each["level"] for each in found] == ["ok", "warning", "problem"]
    assert "without encryption" in found[1]["message"]
    assert "NOT_SET_ANYWHERE" in found[2]["message"]
    assert "retention" in alone
