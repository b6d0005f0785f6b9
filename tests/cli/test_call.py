"""`toolpost call`: arguments in, an answer out, and an exit code that says who can put it right."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import PLUGIN, Run
from toolpost.terminal.failures import as_clause

SMALL = Path(__file__).parent / "servers" / "small.py"

Start = Callable[..., subprocess.Popen[str]]


def test_bundled_tool_is_called_without_any_setup(run: Run) -> None:
    ended = run("call", "time__current_time", "timezone=Asia/Tokyo")

    assert ended.code == 0
    assert ended.json["timezone"] == "Asia/Tokyo"


def test_values_are_read_as_the_declared_type(invoke: Run) -> None:
    words = (
        "text=123",
        "count=5",
        "ratio=null",
        "loud=true",
        "tags=a",
        "tags=7",
        "numbers=1",
        "numbers=2.5",
        "level=2",
    )
    ended = invoke("call", "demo__echo", *words, "size.x=1", "size.y=2", *PLUGIN)

    assert ended.json == {
        "text": "123",
        "count": 5,
        "ratio": None,
        "loud": True,
        "tags": ["a", "7"],
        "numbers": [1, 2.5],
        "level": 2,
        "size": {"x": 1, "y": 2},
    }


def test_later_words_win_over_the_object_before_them(invoke: Run) -> None:
    ended = invoke("call", "demo__echo", '{"text": "a", "count": 1}', "count:=9", 'tags=["x", "y"]', *PLUGIN)

    assert ended.json == {"text": "a", "count": 9, "tags": ["x", "y"]}


def test_arguments_come_from_stdin_and_from_a_file(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "arguments.json").write_text('{"text": "from a file"}')

    assert invoke("call", "demo__echo", "-", *PLUGIN, stdin='{"text": "from stdin"}').json == {"text": "from stdin"}
    assert invoke("call", "demo__echo", "@arguments.json", *PLUGIN).json == {"text": "from a file"}


def test_json_is_the_payload_as_it_is_sent(invoke: Run) -> None:
    ended = invoke("call", "demo__echo", "text=ü", "--json", *PLUGIN)

    assert ended.out == '{"ok":true,"data":{"text":"ü"}}\n'


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("nonsense",), "`nonsense` is not an argument"),
        (("{broken",), "invalid JSON"),
        (("@missing.json",), "cannot read missing.json: No such file"),
        (("text:=oops",), "invalid JSON in `text`"),
    ],
)
def test_words_that_are_no_arguments_are_refused(invoke: Run, words: tuple[str, ...], fact: str) -> None:
    ended = invoke("call", "demo__echo", *words, *PLUGIN)

    assert ended.code == 2
    assert fact in ended.err
    assert "hint: write key=value" in ended.err


def test_bad_arguments_are_refused_with_each_issue(invoke: Run) -> None:
    ended = invoke("call", "demo__echo", "texd=x", "count=many", "--json", *PLUGIN)

    assert ended.code == 2
    # Each issue is on a line of its own: the error does not say it as well.
    assert ended.err.startswith("error: the arguments break the schema of `demo__echo`\n")
    assert "  /count: " in ended.err
    assert '    received: "many"' in ended.err
    assert "    suggestion: did you mean `text`?" in ended.err
    assert "code: INVALID_PARAMS  call: " in ended.err
    assert ended.json["error"]["code"] == "INVALID_PARAMS"


@pytest.mark.parametrize(
    ("tool", "exit_code", "code", "fact"),
    [
        ("demo__fail", 1, "HANDLER_ERROR", "error: the disk is on fire"),
        ("demo__lie", 1, "OUTPUT_VALIDATION_FAILED", "breaks the output schema"),
        ("demo__miss", 2, "NOT_FOUND", "error: there is no such page\nhint: look elsewhere"),
        ("demo__late", 124, "TOOL_TIMEOUT", "did not answer within 0.2 s"),
    ],
)
def test_exit_code_says_who_can_put_it_right(invoke: Run, tool: str, exit_code: int, code: str, fact: str) -> None:
    ended = invoke("call", tool, *PLUGIN)

    assert ended.code == exit_code
    assert fact in ended.err
    assert f"code: {code}" in ended.err
    assert "Traceback" not in ended.err
    assert ended.out == ""


@pytest.mark.parametrize("words", [("call", "--debug"), ("--debug", "call")])
def test_debug_shows_the_traceback_of_a_tool(invoke: Run, words: tuple[str, ...]) -> None:
    ended = invoke(*words, "demo__blocking_fail", "path=/nowhere", *PLUGIN)

    assert ended.code == 1
    assert "Traceback" in ended.err
    assert 'plugin_for_tests.py", line ' in ended.err
    assert "in _read_lines" in ended.err
    assert "hint:" not in ended.err


def test_debug_is_in_the_environment_too(run: Run) -> None:
    ended = run("call", "demo__fail", *PLUGIN, TOOLPOST_DEBUG="1")

    assert "Traceback" in ended.err
    assert "in fail\n" in ended.err


def test_without_debug_a_failure_is_a_line_that_says_where_to_look(invoke: Run) -> None:
    ended = invoke("call", "demo__fail", *PLUGIN)

    assert ended.err.splitlines()[:2] == ["error: the disk is on fire", "hint: --debug shows the traceback"]
    assert ended.err.splitlines()[2].startswith("code: HANDLER_ERROR  call: ")


@pytest.mark.wire
def test_traceback_has_no_secret_that_is_known(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        f"[plugins]\nload = ['plugin_for_tests:plugin']\n[servers.idle]\ncommand = {json.dumps(sys.executable)}\n"
        f"args = {json.dumps(['-S', '-E', str(SMALL), 'fine'])}\nenv = {{API_KEY = '${{DEMO_SECRET}}'}}\n"
    )
    shown = [invoke("call", *words, "demo__leak", DEMO_SECRET="hush-0451-hush") for words in ((), ("--debug",))]

    assert "Traceback" in shown[1].err
    for ended in shown:
        assert "cannot log in with (redacted)" in ended.err
        assert "hush-0451-hush" not in ended.out + ended.err


def test_unknown_tool_is_refused_with_the_nearest_name(invoke: Run) -> None:
    ended = invoke("call", "demo__ecko", *PLUGIN)

    assert ended.code == 2
    assert ended.err == (
        "error: unknown tool `demo__ecko`\nhint: did you mean `demo__echo`? `toolpost tools` lists all of them\n"
    )


def test_progress_is_told_on_stderr_unless_quiet(invoke: Run) -> None:
    ended = invoke("call", "demo__steps", "steps=2", *PLUGIN)
    quiet = invoke("call", "demo__steps", "steps=2", "--quiet", *PLUGIN)

    assert ended.json == quiet.json == "done"
    assert "progress: 1/2  step 1\n" in ended.err
    assert "progress: 2/2  step 2\n" in ended.err
    assert quiet.err == ""


def test_what_a_tool_prints_stays_out_of_the_answer(run: Run) -> None:
    ended = run("call", "demo__chat", *PLUGIN)

    assert ended.json == "said"
    assert "I was printed" in ended.err


def test_image_is_told_of_and_saved_only_where_that_is_asked_for(invoke: Run, tmp_path: Path) -> None:
    told = invoke("call", "demo__picture", *PLUGIN)

    assert told.json == 1
    assert told.err == "image: image/png, 2 B; --save DIR writes it to a file\n"
    assert list(tmp_path.glob("*picture*")) == []

    first = invoke("call", "demo__picture", "--save", "shots", *PLUGIN)
    second = invoke("call", "demo__picture", "--save", "shots", "--json", *PLUGIN)

    assert (first.json, first.err) == (1, "saved: shots/demo__picture-1.png (image/png, 2 B)\n")
    assert (second.json, second.err) == (
        {"ok": True, "data": 1},
        "saved: shots/demo__picture-2.png (image/png, 2 B)\n",
    )
    assert [file.read_bytes() for file in sorted((tmp_path / "shots").iterdir())] == [b"hi", b"hi"]


def test_nothing_from_a_tool_decides_where_a_file_goes(invoke: Run, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "shots"
    ended = invoke("call", "demo__album", "--save", str(folder), *PLUGIN)

    assert ended.json == 2
    assert ended.err.splitlines() == [
        "a caption",
        f"saved: {folder}/demo__album-1.mp3 (audio/mpeg, 2 B)",
        f"saved: {folder}/demo__album-1.bin (../../evil.sh, 2 B)",
        "image: cannot be read; --json prints it",
        f"saved: {folder}/demo__album-1.html (Text/HTML; a=b, 2 B)",
        f"saved: {folder}/demo__album-1.txt (text/plain, 11 B)",
        "link: a page https://example.org/a",
    ]
    files = [path for path in (tmp_path / "in").rglob("*") if path.is_file()]
    assert {path.name: path.read_bytes() for path in files} == {
        "demo__album-1.mp3": b"hi",
        "demo__album-1.bin": b"hi",
        "demo__album-1.html": b"hi",
        "demo__album-1.txt": b"plain words",
    }
    assert all(path.parent == folder and not path.stat().st_mode & 0o111 for path in files)


def test_what_exists_is_never_written_to(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    (tmp_path / "demo__picture-1.png").write_text("mine too")
    (tmp_path / "demo__picture-2.png").symlink_to("kept")
    (tmp_path / "demo__picture-3.png").symlink_to("nowhere")
    ended = invoke("call", "demo__picture", "--save", ".", *PLUGIN)

    assert ended.err == "saved: demo__picture-4.png (image/png, 2 B)\n"
    assert (tmp_path / "kept").read_text() == "mine"
    assert (tmp_path / "demo__picture-1.png").read_text() == "mine too"
    assert not (tmp_path / "nowhere").exists()


def test_folder_that_is_none_is_refused_before_the_call(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "shots").write_text("a file")
    refused = invoke("call", "demo__picture", "--save", "shots", *PLUGIN)
    too_late = invoke("call", "demo__picture", "--save", "shots/below", *PLUGIN)

    assert refused.code == 2
    assert "is a file" in refused.err
    assert refused.out == ""
    assert too_late.code == 3
    assert too_late.json == 1
    assert "error: cannot save image/png, 2 B in shots/below: " in too_late.err


@pytest.mark.wire
def test_content_of_a_server_is_shown_in_its_order(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text(
        f"[servers.pics]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(['-S', '-E', str(SMALL), 'pictures'])}\n"
    )
    told = invoke("call", "pics__snap")
    saved = invoke("call", "pics__snap", "--save", ".")
    as_json = invoke("call", "pics__snap", "--json")
    failed = invoke("call", "pics__spoil", "--save", ".")

    assert told.out == "before\nafter\n# Notes\n"
    assert told.err == (
        "image: image/png, 2 B; --save DIR writes it to a file\nlink: more https://example.org/\\u001b[2J (text/html)\n"
    )
    assert saved.out == "before\nafter\n"
    assert "saved: pics__snap-1.png (image/png, 2 B)\nsaved: pics__snap-1.md (text/markdown, 7 B)\n" in saved.err
    assert (tmp_path / "pics__snap-1.md").read_text() == "# Notes"
    assert [block["type"] for block in as_json.json["content"]][:2] == ["text", "image"]
    assert as_json.err == ""
    assert (failed.code, failed.out) == (1, "")
    assert "saved: pics__spoil-1.png" in failed.err
    assert "error: before after\ncode: HANDLER_ERROR  call: " in failed.err


def test_text_of_others_does_not_steer_the_terminal(invoke: Run) -> None:
    ended = invoke("call", "demo__steer", *PLUGIN)

    assert "\x1b" not in ended.err
    assert r"\u001b[2Jgone" in ended.err


def test_timeout_of_the_caller_cancels_the_call(invoke: Run) -> None:
    ended = invoke("call", "demo__steps", "pause_s=30", "--timeout", "0.3", *PLUGIN)

    assert ended.code == 124
    assert "it took longer than 0.3 s" in ended.err
    assert "code: CANCELLED" in ended.err


def test_synchronous_tool_that_is_stuck_does_not_hold_the_process(run: Run) -> None:
    ended = run("call", "demo__stuck", "--timeout", "0.3", *PLUGIN)

    assert ended.code == 124
    assert "exiting while tools still run in a thread: stuck\n" in ended.err


def test_interrupt_cancels_the_call_and_ends_its_processes(start: Start, run: Run, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    process = start("call", "demo__child", f"pid_file={pid_file}", *PLUGIN)
    pid = _awaited_pid(pid_file)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "code: CANCELLED" in err
    assert not _is_alive(pid)
    assert json.loads(run("audit", "--json").out)["outcome"] == "cancelled"


def test_failed_plugin_of_the_configuration_is_told_of_and_the_call_is_made(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('[plugins]\nload = ["no_such_module:plugin"]\nbundled = ["time"]\n')
    ended = invoke("call", "time__current_time")

    assert ended.code == 0
    assert "warning: plugin `no_such_module:plugin` could not be loaded: there is no module" in ended.err


def _awaited_pid(path: Path) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text()):
            return int(text)
        time.sleep(0.02)
    raise AssertionError("the child has not started")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("sentence", "clause"),
    [
        ("There is no such thread.", "there is no such thread"),
        ("`Asia/Tokio` is not an IANA time zone.", "`Asia/Tokio` is not an IANA time zone"),
        ("URL is missing", "URL is missing"),
        ("Wait…", "Wait…"),
    ],
)
def test_a_sentence_follows_the_word_error_as_a_clause(sentence: str, clause: str) -> None:
    assert as_clause(sentence) == clause
