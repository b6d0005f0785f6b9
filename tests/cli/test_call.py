"""`toolpost call`: arguments in, an answer out, and an exit code that says who can put it right."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import PLUGIN, Run
from toolpost.cli.failures import as_clause

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
        (("{broken",), "no valid JSON"),
        (("@missing.json",), "cannot read missing.json: No such file"),
        (("text:=oops",), "no valid JSON in `text`"),
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
    assert ended.err.startswith("error: the arguments break the schema of `demo__echo`")
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


def test_debug_shows_the_traceback_of_a_tool(run: Run) -> None:
    ended = run("call", "demo__fail", *PLUGIN, TOOLPOST_DEBUG="1")

    assert "Traceback" in ended.err
    assert "plugin_for_tests.py" in ended.err


def test_unknown_tool_is_refused_with_the_nearest_name(invoke: Run) -> None:
    ended = invoke("call", "demo__ecko", *PLUGIN)

    assert ended.code == 2
    assert ended.err == (
        "error: no tool is called `demo__ecko`\nhint: did you mean `demo__echo`? `toolpost tools` lists all of them\n"
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


def test_content_beside_the_data_is_named(invoke: Run) -> None:
    ended = invoke("call", "demo__picture", *PLUGIN)

    assert ended.json == 1
    assert "not shown here: image" in ended.err


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
    assert "leaving without tools that still run in a thread: stuck\n" in ended.err


def test_interrupt_cancels_the_call_and_ends_its_processes(start: Start, run: Run, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    process = start("call", "demo__child", f"pid_file={pid_file}", *PLUGIN)
    pid = _awaited_pid(pid_file)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=15)

    assert process.returncode == 130
    assert "code: CANCELLED" in err
    assert not _is_alive(pid)
    assert json.loads(run("audit", "--json").out)["outcome"] == "cancelled"


def test_failed_plugin_is_told_of_and_the_call_is_made(invoke: Run) -> None:
    ended = invoke("call", "time__current_time", "--with", "time", "--plugin", "no_such_module:plugin")

    assert ended.code == 0
    assert "warning: plugin `no_such_module:plugin` could not be loaded: ModuleNotFoundError" in ended.err


def _awaited_pid(path: Path) -> int:
    deadline = time.monotonic() + 15
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
