"""`toolpost chat` with a real agent in a process of its own: at a terminal, in a pipe, with a gateway that runs and without."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from anyio import to_thread

from tests.cli.conftest import TOOLPOST, Run, Server, open_process
from tests.cli.terminal import Terminal, open_terminal
from toolpost.parts.agents.commands.output import find_finished
from toolpost.parts.agents.settings import AGENTS
from toolpost.parts.agents.testing import acp_agent_command
from toolpost.parts.agents.threads import Threads
from toolpost.settings import load_config
from toolpost.store import open_store
from toolpost.terminal.exits import ExitCode

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="terminals are others there"), pytest.mark.wire]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One gateway for all of these: the threads of one test do not matter to another."""
    folder = tmp_path_factory.mktemp("gateway")
    _configure(folder)
    listening = ("serve", "--listen", "127.0.0.1:0", "--json")
    with open_process(listening, folder, dict(os.environ)) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]


def _configure(folder: Path) -> None:
    command, *args = acp_agent_command()
    told = f'[agents.script]\ncommand = "{command}"\nargs = {json.dumps(args)}\n[plugins]\nbundled = ["time"]\n'
    (folder / "toolpost.toml").write_text(told)


@pytest.fixture
def terminal(gateway: str, tmp_path: Path, environment: dict[str, str]) -> Iterator[Terminal]:
    with open_terminal([TOOLPOST, "chat", "--url", gateway], cwd=tmp_path, env=environment) as opened:
        opened.wait_for("script answers")
        opened.wait_for("> ")
        yield opened


@pytest.mark.wire
def test_a_conversation_at_a_terminal(terminal: Terminal) -> None:
    terminal.enter("say # A title with *words*")
    shown = terminal.wait_for("> ")
    assert "A title with words" in shown, "markdown is rendered"

    terminal.enter(
        'call time__convert_time {"time": "12:00", "source_timezone": "UTC", "target_timezone": "Asia/Tokyo"}'
    )
    assert '"target_timezone": "Asia/Tokyo"' in terminal.wait_for("✓ time__convert_time")
    assert "isDst" in terminal.wait_for("> ")

    terminal.enter('call time__current_time {"timezone": "Nowhere/Land"}')
    terminal.wait_for("✗ time__current_time")
    terminal.wait_for("> ")

    terminal.enter("/threads")
    listed = terminal.wait_for("say # A title")
    assert "*  1  t-" in listed
    first = listed.split("*  1  ")[1].split()[0]

    terminal.enter("/new")
    terminal.wait_for("a new conversation\n> ")
    terminal.enter("count")
    terminal.wait_for("\n1 ")
    terminal.wait_for("> ")
    terminal.enter(f"/resume {first[:12]}")
    terminal.wait_for("A title with words")
    terminal.wait_for("✗ time__current_time")
    terminal.enter("/thraeds")
    terminal.wait_for("did you mean /threads?")
    terminal.enter("//ping")
    terminal.wait_for("I do not know /ping")
    terminal.enter("/resume nobody's")
    terminal.wait_for("error: there is no thread")
    terminal.enter("/quit")
    terminal.wait_for(f"toolpost chat --thread {first}")
    assert terminal.wait_for_end() == 0


def test_control_c_cancels_the_answer_and_keeps_the_thread(terminal: Terminal) -> None:
    terminal.enter("stream 10000 10")
    terminal.wait_for("word3")
    terminal.type("\x03")
    terminal.wait_for("(cancelled; the thread is kept)")
    terminal.wait_for("> ")

    terminal.enter("count")
    assert "2" in terminal.wait_for("> "), "the same session goes on"

    terminal.type_until_shown("half a line")
    terminal.type("\x03")
    terminal.wait_for("> ")
    terminal.type("\x04")
    terminal.wait_for("to continue: toolpost chat --thread t-")
    assert terminal.wait_for_end() == 0


def test_control_c_cancels_no_more_than_the_answer(terminal: Terminal, gateway: str) -> None:
    terminal.enter("stream 10000 10")
    terminal.wait_for("word3")
    site = gateway.removesuffix("/mcp")
    thread = httpx2.get(f"{site}/api/threads").json()["threads"][0]["id"]
    path = f"{site}/api/threads/{thread}"
    with ThreadPoolExecutor(1) as others:
        waiting = others.submit(httpx2.post, f"{path}/messages", json={"text": "say it is my turn"}, timeout=90)
        until = time.monotonic() + 60
        while len(httpx2.get(path).json()["running"]) < 2:
            assert time.monotonic() < until
            terminal.read(0.05)  # else the command waits until there is room for what it shows
        terminal.type("\x03")
        terminal.wait_for("(cancelled; the thread is kept)")

        assert waiting.result(90).json()["text"] == "it is my turn"


def test_what_an_agent_says_does_not_steer_the_terminal(terminal: Terminal) -> None:
    terminal.enter("say \x16\x1b]0;owned\x16\x07 [link](https://example.com/real)")
    shown = terminal.wait_for("https://example.com/real")

    assert "\x1b]0;" not in shown
    terminal.wait_for("> ")


def test_a_question_in_a_pipe(gateway: str, run: Run) -> None:
    url = ("--url", gateway)
    plain = run("chat", *url, stdin="say from a *pipe*\n")
    assert (plain.code, plain.out) == (0, "from a *pipe*\n")

    both = run("chat", *url, "echo see", stdin="say the file")
    assert both.out == "the file\n", "what is piped in comes after the question"

    events = [json.loads(line) for line in run("chat", *url, "--json", "stream 2", stdin="").out.splitlines()]
    assert [event["type"] for event in events if event["type"] != "beat"] == [
        "started",
        "session",
        "text",
        "text",
        "ended",
    ]
    assert events[-1]["text"] == "word0 word1 "

    failed = run("chat", *url, "crash", stdin="")
    assert failed.code == 1
    assert failed.out == "before \n"
    assert "error: " in failed.err

    nobody = run("chat", *url, "--agent", "nobody", "hi", stdin="")
    assert nobody.code == 2
    assert "nobody" in nobody.err


def _example_in(text: str) -> str:
    """Take the configuration out of what is shown: the lines that are indented."""
    return "\n".join(line.strip() for line in text.splitlines() if line.startswith("    "))


@pytest.mark.parametrize("is_running", [False, True])
def test_without_an_agent_it_explains_how_to_add_one(
    is_running: bool, run: Run, serve: Callable[..., Server], tmp_path: Path
) -> None:
    url = ("--url", serve().url) if is_running else ("--here",)
    unnamed, named = [run("chat", *url, *agent, "hello", stdin="") for agent in ((), ("--agent", "helper"))]

    for ended in (unnamed, named):
        assert (ended.code, ended.out) == (ExitCode.SETUP, ""), ended.err
        assert ended.err.startswith("error: no agent is configured")
        assert "pip install 'toolpost[agents]'" in ended.err
    (tmp_path / "shown.toml").write_text(_example_in(unnamed.err))
    shown = AGENTS.of(load_config(tmp_path / "shown.toml"))
    assert {name: agent.kind for name, agent in shown.items()} == {"claude": "claude", "gemini": "acp"}


def test_an_unanswered_question_leaves_no_empty_thread(run: Run, serve: Callable[..., Server]) -> None:
    server = serve()
    run("chat", "--url", server.url, "hello", stdin="")

    threads = httpx2.get(server.url.replace("/mcp", "/api/threads")).json()
    assert threads == {"threads": []}


@pytest.mark.wire
def test_at_a_terminal_without_an_agent_it_explains_how_to_add_one(tmp_path: Path, environment: dict[str, str]) -> None:
    with open_terminal([TOOLPOST, "chat", "--here"], cwd=tmp_path, env=environment) as terminal:
        greeting = terminal.wait_for("\n> ")
        terminal.enter("hello")
        terminal.wait_for("error: no agent is configured")
        terminal.wait_for("> ")
        terminal.enter("/quit")

        assert terminal.wait_for_end() == 0
    assert "no agent is configured at http" in greeting
    assert 'kind = "claude"' in _example_in(greeting)


@pytest.mark.anyio
async def test_without_a_gateway_one_is_opened_and_threads_are_kept(tmp_path: Path, run: Run) -> None:
    _configure(tmp_path)
    told = await to_thread.run_sync(lambda: run("chat", "--here", "say remember blue", stdin=""))
    async with open_store(load_config(tmp_path / "toolpost.toml").store_url) as store:
        threads = Threads(store.scripts)
        (thread,) = await threads.page(None)
        messages = await threads.messages(thread.id)

    assert (told.code, told.out) == (0, "remember blue\n")
    assert [message.text for message in messages] == ["say remember blue", "remember blue"]


def test_with_debug_the_log_of_the_opened_gateway_is_shown(run: Run, tmp_path: Path) -> None:
    _configure(tmp_path)
    quiet, told = run("chat", "--here", "say hi", stdin=""), run("--debug", "chat", "--here", "say hi", stdin="")

    assert "turn ended" not in quiet.err
    assert "INFO turn ended" in told.err


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("one", 0),
        ("one\n\ntwo", 5),
        ("```\na\n\nb", 0),
        ("x\n\n```\na\n\nb", 3),
        ("```\na\n\nb\n```\n\nrest", 14),
    ],
)
def test_blocks_are_finished_at_empty_lines_outside_of_code(text: str, cut: int) -> None:
    assert find_finished(text) == cut
