"""`toolpost workspace` on the screen: what a person sees of builds, hits and states, in colour and without."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.terminals import on_a_terminal
from tests.parts.workspace.repos import FILES, USERS, make_repo, write
from toolpost.parts.workspace.generations import read_pointer
from toolpost.parts.workspace.spec import spec_of

pytestmark = pytest.mark.wire

COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
EVIL = "src/evil\x1b[31m\x07.py"


def rows(shown: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line) for line in shown.splitlines()]


def test_states_are_told_as_they_are(tmp_path: Path, invoke: Run) -> None:
    shop = make_repo(tmp_path / "shop")
    make_repo(tmp_path / "tools", {"a.py": "x = 1\n"})
    write(tmp_path, {"toolpost.toml": '[workspace]\nroots = ["shop", "tools", "missing"]\n'})

    before = invoke("workspace", "status")
    built = invoke("workspace", "build", "--quiet")
    write(shop, {"src/users.py": USERS * 2})
    folder = next((tmp_path / ".toolpost/workspace").glob("tools-*"))
    (folder / "current.json").write_text("{")
    after = invoke("workspace", "status")

    head, *lines = rows(before.out)
    assert head == ["REPOSITORY", "STATE", "FILES", "LINES", "SIZE", "AGE", "FOLDER"]
    assert [line[:2] for line in lines] == [["shop", "no index"], ["tools", "no index"], ["missing", "no index"]]
    assert rows(built.out)[0] == ["REPOSITORY", "FILES", "LINES", "CHANGES", "TIME", "LEFT OUT"]
    assert rows(built.out)[1][:4] == ["shop", "3", "35", "3 added, 0 changed, 0 renamed, 0 removed"]
    assert re.search(r"^warning: missing: There is no folder .*/missing$", built.err, re.MULTILINE), built.err
    assert [line[:3] for line in rows(after.out)[1:]] == [
        ["shop", "1 changed", "3"],
        ["tools", "damaged", "0"],
        ["missing", "no index", "0"],
    ]
    assert re.search(r"KiB +\d+ s +/", after.out)


def test_what_is_left_out_and_what_is_made_anew_is_said(tmp_path: Path, invoke: Run) -> None:
    make_repo(tmp_path, {**FILES, "picture.png": b"\x89PNG\0", "small.min.js": "var a=1;" * 5_000})
    first = invoke("workspace", "build", "-q")
    again = invoke("workspace", "build", "-q", "--from-scratch")

    assert rows(first.out)[1][-1] == "1 binary, 1 minified"
    assert again.err == f"{tmp_path.name} was built from nothing: asked for\n"


def test_hits_and_what_is_said_beside_them(tmp_path: Path, invoke: Run) -> None:
    make_repo(tmp_path / "shop")
    make_repo(tmp_path / "tools", {"many.py": "".join(f"def user{n}(): ...\n" for n in range(1_200))})
    write(tmp_path, {"toolpost.toml": '[workspace]\nroots = ["shop", "tools", "third"]\n'})
    invoke("workspace", "build", "-q")
    write(tmp_path, {"shop/src/users.py": "\n\n" + USERS})

    hits = invoke("workspace", "search", "getUserById", "-n", "1")
    nothing = invoke("workspace", "search", "marmalade")
    cut = invoke("workspace", "search", "def user", "--regex", "-n", "2", "--repo", "tools")
    as_json = invoke("workspace", "search", "getUserById", "--json", "--repo", "shop")

    assert hits.out == (
        "shop:src/users.py:13-15  method UserStore.getUserById  (changed since it was indexed)\n"
        "    13  def getUserById(self, number):\n"
    )
    assert hits.err.splitlines() == [
        "warning: third: `third` has no index yet",
        "1 file has changed since indexed",
    ]
    assert (nothing.out, nothing.code) == ("", 0)
    assert nothing.err.splitlines()[0] == "nothing was found"
    assert cut.out.count("\n\n") == 1
    assert "there may be more" in cut.err
    assert as_json.json["hits"][0]["stale"] is True


def test_on_a_terminal_there_are_colours_and_a_bar(tmp_path: Path, environment: dict[str, str]) -> None:
    make_repo(tmp_path, {**FILES, EVIL: "def evil(): ...\n"})
    environment |= {"TERM": "xterm-256color", "COLUMNS": "120"}

    built = on_a_terminal(["workspace", "build"], tmp_path, environment)
    hits = on_a_terminal(["workspace", "search", "evil", "-n", "1", "-C", "1"], tmp_path, environment)
    plain = on_a_terminal(["workspace", "search", "evil", "-n", "1"], tmp_path, environment | {"NO_COLOR": "1"})

    assert "━" in built, "a bar"
    assert "REPOSITORY" in COLOURS.sub("", built)
    assert "\x1b[35msrc/evil\\u001b[31m\\u0007.py\x1b[0m\x1b[32m:1-1\x1b[0m\x1b[36m  function evil" in hits
    assert "\x1b[97mdef evil(): ...\x1b[0m" in hits
    assert "\x1b[31m" not in hits, "a file's name does not get to steer the terminal"
    assert plain.splitlines() == ["src/evil\\u001b[31m\\u0007.py:1-1  function evil", "     1  def evil(): ..."]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["build", "--repo", "shpo"], "did you mean `shop`?"),
        (["build", "--mode", "everything"], "'everything' is not one of"),
        (["search"], "missing argument"),
        (["search", "x", "--kind", "klass"], "'klass' is not one of"),
        (["search", "x", "--top", "0"], "0 is not in the range"),
        (["search", "[", "--regex"], "missing ]"),
    ],
)
def test_what_is_typed_wrong_is_said(arguments: list[str], said: str, tmp_path: Path, invoke: Run) -> None:
    make_repo(tmp_path / "shop", {"a.py": "x = 1\n"})
    write(tmp_path, {"toolpost.toml": '[workspace]\nroots = ["shop"]\n'})
    if "--regex" in arguments:
        invoke("workspace", "build", "-q")
    ended = invoke("workspace", *arguments)

    assert ended.code == 2
    assert said in ended.err.lower()
    home = spec_of(tmp_path, ["shop"]).repositories[0].index_dir
    assert (read_pointer(home) is not None) == ("--regex" in arguments)
