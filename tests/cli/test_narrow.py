"""What is shown on terminals of 80 and 120 columns: nothing wraps at the edge, and what matters is there."""

import re
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import PLUGIN, Run
from tests.cli.terminals import on_a_terminal
from tests.cli.test_first_use import SMALL

pytestmark = pytest.mark.wire

ROOT = str(Path(__file__).parents[2])
OFFICE = [part for name in ("calendar", "wiki") for part in ("--plugin", f"tests.plugins.office:{name}")]


def shown(width: int, arguments: list[str], folder: Path, environment: dict[str, str]) -> list[str]:
    """Return the lines that a command shows on a terminal, without colours."""
    terminal = {"COLUMNS": str(width), "TERM": "xterm-256color", "PYTHONPATH": f"{environment['PYTHONPATH']}:{ROOT}"}
    text = on_a_terminal(arguments, folder, environment | terminal)
    # What is drawn over a line is a line of its own.
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n").replace("\r", "\n").splitlines()
    lines = [line.rstrip() for line in lines]
    assert max(map(len, lines)) <= width, lines
    return lines


@pytest.mark.parametrize("width", [80, pytest.param(120, marks=pytest.mark.soak)])
def test_tools_keep_their_descriptions(width: int, tmp_path: Path, environment: dict[str, str]) -> None:
    lines = shown(width, ["tools", *OFFICE], tmp_path, environment)
    (at,) = [number for number, line in enumerate(lines) if line.startswith("calendar__create_event ")]

    assert lines[0].startswith("NAME ")
    assert lines[0].endswith("DESCRIPTION")
    assert ("VERSION" in lines[0]) is (width == 120)
    assert ("TIME LIMIT" in lines[0]) is (width == 120)
    assert width - lines[0].index("DESCRIPTION") >= 36
    assert len(lines[at].split()) > 3
    assert len(lines) < 3 * sum("__" in line for line in lines)


@pytest.mark.parametrize("width", [80, pytest.param(120, marks=pytest.mark.soak)])
def test_search_has_two_lines_for_each_hit(width: int, tmp_path: Path, environment: dict[str, str]) -> None:
    lines = shown(width, ["tools", "--find", "create a calendar event", *OFFICE], tmp_path, environment)
    hits = [line for line in lines if re.match(r"\d\.\d\d  \w+__\w+ ", line)]

    assert hits[0].startswith("1.00  calendar__create_event ")
    assert "name: create event" in lines[1]
    assert len(lines) <= 2 * len(hits) + 4


@pytest.mark.parametrize("width", [80, pytest.param(120, marks=pytest.mark.soak)])
def test_search_says_where_it_leaves_something_out(width: int, tmp_path: Path, environment: dict[str, str]) -> None:
    lines = shown(width, ["tools", "--find", "look for names in code", "--with", "workspace"], tmp_path, environment)
    (line,) = [line for line in lines if "workspace__search " in line]

    assert line.endswith("…")
    assert len(line) > width - 12


@pytest.mark.parametrize("width", [80, pytest.param(120, marks=pytest.mark.soak)])
def test_progress_with_much_to_say_keeps_its_bar(width: int, tmp_path: Path, environment: dict[str, str]) -> None:
    lines = shown(width, ["call", "demo__babble", *PLUGIN], tmp_path, environment)
    bars = [line for line in lines if "━" in line and "demo__babble  downloading" in line]

    assert bars
    assert all("…" in line and " 30% 0:00:0" in line for line in bars)


@pytest.mark.parametrize("width", [80, pytest.param(120, marks=pytest.mark.soak)])
def test_audit_has_one_line_for_each_call(width: int, invoke: Run, tmp_path: Path, environment: dict[str, str]) -> None:
    invoke("call", "time__current_time")
    invoke("call", "time__convert_time")
    lines = shown(width, ["audit"], tmp_path, environment)

    assert len(lines) == 3
    assert lines[0].split()[:2] == ["SEQ", "TIME"]
    assert lines[1].endswith("time__current_time")
    assert "INVALID_PARAMS" in lines[2]
    assert ("ms" in lines[1]) is (width == 120)


def test_completion_starts_no_server_and_knows_the_tools_that_were_seen(run: Run, tmp_path: Path) -> None:
    mark = tmp_path / "started"
    (tmp_path / "script.py").write_text(
        f"import runpy, sys\nopen({str(mark)!r}, 'w')\nsys.argv = ['x', 'fine']\n"
        f"runpy.run_path({str(SMALL)!r}, None, '__main__')\n"
    )
    (tmp_path / "toolpost.toml").write_text(
        f'[plugins]\nbundled = ["time"]\n[servers.fine]\ncommand = "{sys.executable}"\nargs = ["-S", "-E", "script.py"]\n'
    )

    def completed(start: str) -> list[str]:
        words = {"COMP_WORDS": f"toolpost call {start}", "COMP_CWORD": "2", "_TOOLPOST_COMPLETE": "bash_complete"}
        return run(**words).out.split()

    before = completed("")
    assert not mark.exists()
    run("call", "fine__echo", "text=x")
    assert mark.exists()
    mark.unlink()

    assert before == ["plain,time__convert_time", "plain,time__current_time"]
    assert completed("fi") == ["plain,fine__echo"]
    assert not mark.exists()
