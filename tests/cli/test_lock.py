"""`toolpost lock`, `check` and `diff`: a tool's contract does not change unnoticed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.upstreams.behind import SERVERS
from tests.upstreams.changing import (
    FIELD_GONE,
    LOOKUP,
    NARROWED,
    OTHER_DEFAULT,
    REQUIRED,
    REWORDED,
    WIDENED,
    Changing,
)
from tests.upstreams.extended import extending
from tests.upstreams.servers.skillful import write_skill

pytestmark = pytest.mark.wire

ONLY = "[plugins]\ninstalled = false\ndisable = ['time', 'bus', 'workspace']\n"


@pytest.fixture
def maps(tmp_path: Path) -> Changing:
    server = Changing(tmp_path)
    (tmp_path / "toolpost.toml").write_text(ONLY + server.settings())
    return server


def versioned(tool: dict[str, Any], version: int) -> dict[str, Any]:
    return tool | {"_meta": {"dev.toolpost/meta": {"schemaVersion": version}}}


def changes_of(drift: dict[str, Any]) -> set[str]:
    return {change["rule"] for change in drift["changes"]}


def test_a_lock_holds_whole_definitions_and_is_the_same_each_time(maps: Changing, invoke: Run, tmp_path: Path) -> None:
    first = invoke("lock")
    text = (tmp_path / "toolpost.lock").read_text()
    again = invoke("lock")

    locked = json.loads(text)["tools"]["maps__lookup"]
    assert first.code == 0
    assert "contains 1 tool: 1 added" in first.out
    assert again.out.strip().endswith("still contains 1 tool: no changes")
    assert (tmp_path / "toolpost.lock").read_text() == text
    assert locked["definition"]["inputSchema"] == LOOKUP["inputSchema"]
    assert locked["definition"]["outputSchema"] == LOOKUP["outputSchema"]
    assert locked["source"] == maps.name
    assert set(locked["digests"]) == {"meaning", "schema", "wording"}


def test_nothing_is_written_on_a_dry_run(maps: Changing, invoke: Run, tmp_path: Path) -> None:
    ended = invoke("lock", "--dry-run", "--json")

    assert ended.code == 0
    assert ended.json["written"] is False
    assert [drift["name"] for drift in ended.json["drifts"]] == [f"{maps.name}__lookup"]
    assert not (tmp_path / "toolpost.lock").exists()


@pytest.mark.parametrize(
    ("tool", "code", "verdict", "rule"),
    [
        (LOOKUP, 0, None, None),
        (WIDENED, 0, "compatible", "input.optional-added"),
        (REWORDED, 0, "review", "wording.description-changed"),
        (NARROWED, 1, "breaking", "input.values-removed"),
        (REQUIRED, 1, "breaking", "input.required-added"),
        (OTHER_DEFAULT, 1, "breaking", "input.default-changed"),
        (FIELD_GONE, 1, "breaking", "output.field-removed"),
    ],
    ids=["same", "widened", "reworded", "narrowed", "required", "default", "field-gone"],
)
def test_a_check_passes_what_harms_nobody(
    maps: Changing, invoke: Run, tool: dict[str, Any], code: int, verdict: str | None, rule: str | None
) -> None:
    invoke("lock")
    maps.lists(tool)
    ended = invoke("check", "--json")
    strict = invoke("check", "--strict")

    drifts = ended.json["drifts"]
    assert ended.code == code
    assert ended.json["ok"] is (code == 0)
    assert strict.code == (0 if verdict is None else 1)
    assert [drift["verdict"] for drift in drifts] == ([verdict] if verdict else [])
    if rule:
        assert rule in changes_of(drifts[0])


def test_a_breaking_change_comes_with_a_call_that_no_longer_works(maps: Changing, invoke: Run) -> None:
    invoke("lock")
    maps.lists(NARROWED)
    shown = invoke("diff")
    drift = invoke("diff", "--json").json["drifts"][0]

    change = next(change for change in drift["changes"] if change["rule"] == "input.values-removed")
    assert change["example"]["unit"] == "yard"
    assert "yard" in change["message"]
    assert "a call that used to work and no longer does" in shown.out
    assert change["affected"]
    assert drift["schemaVersion"] == {"old": 1, "new": 1, "wanted": 2}


@pytest.mark.parametrize(
    ("before", "after", "code", "fault"),
    [
        (LOOKUP, versioned(REQUIRED, 2), 0, None),
        (LOOKUP, versioned(LOOKUP, 2), 1, "bump-without-cause"),
        (versioned(LOOKUP, 3), versioned(WIDENED, 2), 1, "version-went-down"),
        (LOOKUP, REQUIRED, 1, "bump-missing"),
    ],
    ids=["raised", "without-cause", "down", "missing"],
)
def test_versions_rise_with_a_cause_and_only_then(
    maps: Changing, invoke: Run, before: dict[str, Any], after: dict[str, Any], code: int, fault: str | None
) -> None:
    maps.lists(before)
    invoke("lock")
    maps.lists(after)
    ended = invoke("check", "--json")

    assert ended.code == code
    assert ended.json["drifts"][0]["fault"] == fault


def test_a_tool_that_is_gone_fails_unless_another_answers_to_its_name(run: Run, tmp_path: Path) -> None:
    def write(name: str, aliases: str, version: int = 1) -> None:
        (tmp_path / "kit.py").write_text(
            "from toolpost import Plugin\n\nplugin = Plugin('kit')\n\n"
            f"@plugin.tool(aliases={aliases}, schema_version={version}, description='Say it{'.' * version}')\n"
            f"async def {name}(text: str) -> str:\n    return text\n"
        )

    (tmp_path / "toolpost.toml").write_text(ONLY.replace("[plugins]", "[plugins]\nload = ['kit:plugin']"))
    write("say", "[]")
    run("lock")
    write("speak", "[]")
    gone = run("check", "--json")
    write("speak", "['say']")
    unversioned = run("check", "--json")
    write("speak", "['say']", version=2)
    renamed = run("check", "--json")

    assert gone.code == 1
    assert {drift["name"]: drift["fault"] for drift in gone.json["drifts"]} == {
        "kit__say": "removed-without-alias",
        "kit__speak": None,
    }
    assert (unversioned.code, renamed.code) == (1, 0)
    (drift,) = unversioned.json["drifts"]
    assert (drift["fault"], drift["verdict"]) == ("bump-missing", "compatible")
    assert drift["schemaVersion"] == {"old": 1, "new": 1, "wanted": 2}
    assert [(drift["kind"], drift["newName"]) for drift in renamed.json["drifts"]] == [("renamed", "kit__speak")]


def test_a_server_that_is_down_leaves_the_check_undecided(maps: Changing, invoke: Run, tmp_path: Path) -> None:
    invoke("lock")
    before = (tmp_path / "toolpost.lock").read_text()
    (tmp_path / "toolpost.toml").write_text(ONLY + "[servers.maps]\ncommand = 'false'\n")
    checked = invoke("check")
    locked = invoke("lock")

    assert checked.code == 2
    assert f"`{maps.name}` was not compared" in checked.err
    assert locked.code != 0
    assert "nothing was written" in locked.err
    assert (tmp_path / "toolpost.lock").read_text() == before


def test_a_plugin_that_does_not_load_leaves_the_check_undecided(run: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('[plugins]\nload = ["./atlas.py", "plugin_for_tests:plugin"]\n')
    source = 'from toolpost import Plugin\n\nplugin = Plugin("maps")\n\n\n@plugin.tool\ndef find() -> int:\n    """Find."""\n'
    (tmp_path / "atlas.py").write_text(source)
    locked = run("lock")
    (tmp_path / "atlas.py").write_text(f"import not_there\n{source}")
    ended = run("check", "--json")

    assert locked.code == 0, locked.err
    assert ended.code == 2
    assert ended.json["drifts"] == ended.json["failures"] == []
    assert ended.json["compared"] > 0
    assert "No module named 'not_there'" in ended.json["missing"]["./atlas.py"]


def test_a_plugin_that_does_not_load_has_no_removed_tools(run: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('[plugins]\nload = ["./atlas.py", "plugin_for_tests:plugin"]\n')
    source = 'from toolpost import Plugin\n\nplugin = Plugin("maps")\n\n\n@plugin.tool\ndef find() -> int:\n    """Find."""\n'
    (tmp_path / "atlas.py").write_text(source)
    run("lock")
    (tmp_path / "atlas.py").write_text(f"import not_there\n{source}")
    gone, come = run("diff", "--json"), run("diff", "live", "toolpost.lock", "--json")

    assert gone.json["drifts"] == come.json["drifts"] == []
    assert "cannot list the tools of `./atlas.py`" in gone.err


def test_skills_are_counted_apart_from_tools(invoke: Run, tmp_path: Path) -> None:
    write_skill(tmp_path / "skills", "refunds")
    command = [sys.executable, str(SERVERS / "skillful.py"), str(tmp_path / "skills")]
    (tmp_path / "toolpost.toml").write_text(
        f"{ONLY}[servers.desk]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n"
    )
    locked, checked = invoke("lock"), invoke("check")

    assert "contains 0 tools and 1 skill: 1 added" in locked.out
    assert "0 tools and 1 skill compared with toolpost.lock; no changes" in checked.out


def test_single_changes_are_accepted(maps: Changing, invoke: Run, tmp_path: Path) -> None:
    other = LOOKUP | {"name": "other"}
    maps.lists(LOOKUP, other)
    invoke("lock")
    maps.lists(NARROWED, REQUIRED | {"name": "other"})
    accepted = invoke("lock", "--accept", "maps__lookup")
    checked = invoke("check", "--json")
    missed = invoke("lock", "--accept", "maps__lokup")
    bare = invoke("lock", "maps__lookup")

    assert accepted.code == 0
    assert checked.json["failures"] == ["maps__other"]
    assert "did you mean `maps__lookup`?" in missed.err
    assert bare.code == 2
    assert json.loads((tmp_path / "toolpost.lock").read_text())["tools"].keys() == {"maps__lookup", "maps__other"}


def test_one_server_can_be_locked_alone(maps: Changing, invoke: Run, tmp_path: Path) -> None:
    second = Changing(tmp_path, "roads")
    (tmp_path / "toolpost.toml").write_text(ONLY + maps.settings() + second.settings())
    invoke("lock")
    maps.lists(NARROWED)
    second.lists(REQUIRED)
    locked = invoke("lock", "--server", "maps")
    checked = invoke("check", "--json")
    alone = invoke("check", "--server", "maps")
    unknown = invoke("check", "--server", "map")

    assert locked.code == 0
    assert checked.json["failures"] == ["roads__lookup"]
    assert alone.code == 0
    assert "did you mean `maps`?" in unknown.err


def test_annotations_lead_to_the_line_of_the_lock(maps: Changing, invoke: Run, tmp_path: Path) -> None:
    invoke("lock")
    maps.lists(NARROWED)
    lines = invoke("check", "--format", "github").out.splitlines()
    number = next(
        number
        for number, line in enumerate((tmp_path / "toolpost.lock").read_text().splitlines(), 1)
        if '"maps__lookup": {' in line
    )

    assert len(lines) == 1
    assert lines[0].startswith(f"::error file=toolpost.lock,line={number},title=maps__lookup%3A changed%2C breaking::")
    assert "%0A" in lines[0]


def test_a_pull_request_gets_markdown(maps: Changing, invoke: Run) -> None:
    invoke("lock")
    maps.lists(REWORDED | {"description": "<script>alert(1)</script> `x` @everyone"})
    text = invoke("check", "--format", "markdown").out

    assert text.startswith("## Tool contracts")
    assert "### 🟡 `maps__lookup` changed" in text
    assert "<script>" not in text
    assert "\\@everyone" in text


def test_states_come_from_files_and_from_a_pipe(maps: Changing, invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(json.dumps(LOOKUP))
    (tmp_path / "new.json").write_text(json.dumps({"result": {"tools": [NARROWED]}}))
    files = invoke("diff", "old.json", "new.json", "--json")
    invoke("lock")
    piped = invoke("diff", "-", "live", stdin=(tmp_path / "toolpost.lock").read_text())
    missing = invoke("diff", "nowhere.json", "new.json")
    nonsense = invoke("diff", "-", "new.json", stdin="[1]")

    assert changes_of(files.json["drifts"][0]) == {"input.values-removed"}
    assert piped.out.strip() == "no differences"
    assert "file not found: nowhere.json" in missing.err
    assert "contains no tool definitions" in nonsense.err


def test_rules_are_explained(invoke: Run) -> None:
    told = invoke("diff", "--explain", "input.required-added")
    missed = invoke("diff", "--explain", "input.requird-added")

    assert told.code == 0
    assert "schemaVersion: must rise" in told.out
    assert "did you mean `input.required-added`?" in missed.err


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text[: len(text) // 2], "it is truncated or not JSON"),
        (lambda text: text.replace("Find a place", "Find any place"), "it was edited by hand"),
        (lambda text: text.replace('"toolpostLock": 1', '"toolpostLock": 9'), "has the format 9"),
        (lambda text: text.replace("{\n", "{\n<<<<<<< HEAD\n", 1), "line 2: a merge conflict is not resolved"),
        (lambda text: text.replace('"source": "maps"', '"source": 5'), "`maps__lookup`"),
        (lambda text: text.replace('"maps__lookup": {', '"maps__other": {', 1), "holds the definition of"),
        (lambda _text: "[]", "is not a Toolpost lock file"),
        (lambda _text: "", "it is truncated or not JSON"),
        (lambda _text: '{"a":' * 50_000, "toolpost.lock"),
    ],
)
def test_a_lock_that_cannot_be_used_is_named_and_kept(
    maps: Changing, invoke: Run, tmp_path: Path, spoil: Any, said: str
) -> None:
    invoke("lock")
    path = tmp_path / "toolpost.lock"
    spoiled = spoil(path.read_text())
    path.write_text(spoiled)
    ended = [invoke("check"), invoke("lock")]

    for one in ended:
        assert one.code == 3
        assert said in one.err
        assert "Traceback" not in one.err
    assert path.read_text() == spoiled
    assert maps.name


def test_a_tool_that_is_there_twice_is_named_with_its_line(maps: Changing, invoke: Run, tmp_path: Path) -> None:
    invoke("lock")
    path = tmp_path / "toolpost.lock"
    lines = path.read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if "maps__lookup" in line)
    entry = [*lines[start:-2]]
    entry[-1] += ","
    path.write_text("\n".join([*lines[:start], *entry, *lines[start:]]))
    ended = invoke("check")

    assert ended.code == 3
    assert f"line {start + len(entry) + 1}: `{maps.name}__lookup` is listed twice" in ended.err


def test_a_lock_is_replaced_whole_or_not_at_all(maps: Changing, invoke: Run, tmp_path: Path) -> None:
    invoke("lock")
    before = (tmp_path / "toolpost.lock").read_text()
    maps.lists(NARROWED)
    subprocess.run(["chmod", "u-w", str(tmp_path)], check=True)
    try:
        invoke("lock")
    finally:
        subprocess.run(["chmod", "u+w", str(tmp_path)], check=True)
    after = (tmp_path / "toolpost.lock").read_text()

    assert after == before or json.loads(after)["tools"].keys() == {"maps__lookup"}
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".toolpost.lock")] == []


def test_instructions_are_locked_and_a_change_is_a_drift(invoke: Run, tmp_path: Path) -> None:
    def say(text: str) -> None:
        spec = extending(tmp_path, greeting={"instructions": text})
        command, *arguments = spec.command or ()
        settings = f"[servers.up]\ncommand = {json.dumps(command)}\nargs = {json.dumps(arguments)}\n"
        (tmp_path / "toolpost.toml").write_text(ONLY + settings)

    say("First `do`.\nThen rest.")
    locked = invoke("lock")
    written = json.loads((tmp_path / "toolpost.lock").read_text())
    same = invoke("check", "--strict")
    say("First `do`.\nThen `do` again.")
    changed = json.loads(invoke("check", "--json").out)
    strict = invoke("check", "--strict")
    shown = invoke("diff")
    diagnosed = invoke("doctor", "up")
    accepted = invoke("lock", "--accept", "up:instructions")
    after = invoke("check", "--strict")
    say("")
    removed = json.loads(invoke("check", "--json").out)
    text = (tmp_path / "toolpost.lock").read_text()
    (tmp_path / "toolpost.lock").write_text(text.replace("again", "twice"))
    edited = invoke("check")

    assert "contains 1 tool: 2 added" in locked.out
    assert written["instructions"]["up"]["text"] == ["First `do`.", "Then rest."]
    assert [*written["tools"]] == ["up__do"]
    assert (same.code, strict.code, accepted.code, after.code) == (0, 1, 0, 0)
    (drift,) = changed["drifts"]
    assert (changed["ok"], changed["compared"], drift["name"], drift["verdict"]) == (
        True,
        1,
        "up:instructions",
        "review",
    )
    assert "again" in shown.out
    assert "up:instructions" in diagnosed.out
    (gone,) = removed["drifts"]
    assert (removed["ok"], gone["kind"], gone["verdict"]) == (True, "removed", "compatible")
    assert edited.code == 3
    assert "instructions.up" in edited.err
    assert "edited by hand" in edited.err
