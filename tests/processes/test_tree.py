"""Commands start with little, and end with everything that they started."""

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from tests.hostile.attacks import attack
from tests.waiting import until, wait_until
from toolpost.contracts.errors import CapabilityMissing
from toolpost.processes import command as process_order
from toolpost.processes import pipes as process_pipes
from toolpost.processes import posix as process_posix
from toolpost.processes import strays as process_strays
from toolpost.processes import tree as process_tree
from toolpost.processes.tree import open_process, run

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="the victims are POSIX processes"),
    pytest.mark.wire,
]

VICTIMS = Path(__file__).parents[1] / "victims"
NAMES = {"child", "grandchild", "setsid", "daemon", "wiped"}
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper or /proc")


@pytest.fixture(params=[pytest.param(False, id="asyncio", marks=pytest.mark.soak), pytest.param(True, id="uvloop")])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where victims write their pids; whoever a failed test left alive ends with it."""
    yield tmp_path
    for pid in pids_in(tmp_path).values():
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def no_subreaper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be another POSIX system than Linux."""
    monkeypatch.setattr(process_posix, "_REAPER_ADOPTS", False)


def family(folder: Path, wish: str = "stay") -> list[str]:
    return [sys.executable, "-S", str(VICTIMS / "family.py"), str(folder), wish]


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def pids_in(folder: Path) -> dict[str, int]:
    return {name: int((folder / name).read_text()) for name in NAMES if (folder / name).exists()}


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def survivors(folder: Path) -> set[str]:
    return {name for name, pid in pids_in(folder).items() if is_alive(pid)}


def wait_until_up(folder: Path) -> None:
    wait_until(lambda: set(pids_in(folder)) == NAMES)


def wait_for_death(folder: Path) -> None:
    wait_until(lambda: not survivors(folder))


# Running to the end


async def test_a_command_gives_its_exit_code_and_its_output() -> None:
    finished = await run(["sh", "-c", "echo out; echo err >&2; exit 3"])

    assert finished == process_tree.CompletedCommand(returncode=3, stdout="out\n", stderr="err\n")


async def test_a_command_that_a_signal_ended_has_its_number_below_zero() -> None:
    finished = await run(["sh", "-c", "kill -USR1 $$"])

    assert finished.returncode == -signal.SIGUSR1


async def test_input_is_read_and_ends() -> None:
    data = os.urandom(300_000).hex().encode()

    finished = await run(["cat"], input=data, tail_bytes=len(data))

    assert finished.stdout == data.decode()


async def test_input_that_nobody_reads_is_no_error() -> None:
    finished = await run(["true"], input=bytes(1_000_000))

    assert finished.returncode == 0


async def test_a_command_without_input_reads_nothing() -> None:
    assert (await run(["cat"])).stdout == ""


async def test_huge_output_is_drained_and_its_tail_kept() -> None:
    code = "import sys\nfor s in (sys.stdout, sys.stderr) * 20: s.write('x' * 1_000_000)\nprint('end')"

    finished = await run(python(code), tail_bytes=1_000)

    assert finished.stdout == "x" * 996 + "end\n"
    assert finished.stderr == "x" * 1_000


async def test_output_that_is_not_text_is_replaced() -> None:
    assert (await run(["printf", r"a\377b"])).stdout == "a\ufffdb"


async def test_each_line_is_told_as_it_comes() -> None:
    lines: list[tuple[str, str]] = []

    await run(
        ["sh", "-c", "printf 'one\\ntw'; sleep 0.05; printf 'o\\r\\n\\nlast'; printf 'err\\n' >&2"],
        on_line=lambda stream, line: lines.append((stream, line)),
    )

    assert [line for stream, line in lines if stream == "stdout"] == ["one", "two", "", "last"]
    assert ("stderr", "err") in lines


async def test_a_line_without_end_is_cut() -> None:
    lines: list[str] = []

    await run(python("print('x' * 1_000_000); print('y')"), on_line=lambda _, line: lines.append(line))

    assert lines == ["x" * process_pipes.LINE_LIMIT_BYTES, "y"]


async def test_a_listener_that_fails_ends_the_command(folder: Path) -> None:
    def fail(stream: str, line: str) -> None:
        raise LookupError(line)

    with pytest.raises(LookupError, match="ready"):
        await run(family(folder), grace_s=0.2, on_line=fail)

    assert not survivors(folder)


async def test_fifty_commands_run_at_once() -> None:
    outputs: dict[int, str] = {}

    async def one(number: int) -> None:
        outputs[number] = (await run(["echo", str(number)])).stdout

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(one, number)

    assert outputs == {number: f"{number}\n" for number in range(50)}


# What a command gets


@attack(
    "server",
    "reads the gateway's environment",
    "it has a few harmless variables and its own",
)
async def test_a_command_gets_the_minimal_environment_and_what_it_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GATEWAY_SECRET", "hunter2")
    monkeypatch.setenv("LC_TIME", "C")
    for name in ("LANG", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)  # Python would add LC_CTYPE by itself here.

    finished = await run(["env"], env={"GIVEN": "a=b\nc", "HOME": "/nowhere"})

    expected = process_tree.make_environment() | {"GIVEN": "a=b\nc", "HOME": "/nowhere"}
    told = finished.stdout.splitlines()
    assert {line for line in told if not line.startswith(process_order.COOKIE)} == {
        line for name, value in expected.items() for line in f"{name}={value}".splitlines()
    }
    assert "LC_TIME=C" in told
    assert "hunter2" not in finished.stdout


@attack(
    "server",
    "looks for open files and sockets of the gateway",
    "it has its own stdio and nothing else",
)
@on_linux
async def test_a_command_gets_no_descriptors_but_its_stdio() -> None:
    finished = await run(python("import posix; print(sorted(posix.listdir('/proc/self/fd')))"))

    assert finished.stdout == "['0', '1', '2', '3']\n", "3 is the listing itself"


@on_linux
async def test_a_command_gets_sigpipe_back() -> None:
    finished = await run(["grep", "SigIgn", "/proc/self/status"])

    assert not int(finished.stdout.split()[1], 16) & 1 << (signal.SIGPIPE - 1)


async def test_a_command_runs_in_its_directory(tmp_path: Path) -> None:
    script = tmp_path / "here.sh"
    script.write_text("#!/bin/sh\npwd\n")
    script.chmod(0o755)

    finished = await run(["./here.sh"], cwd=tmp_path)

    assert finished.stdout.strip() == str(tmp_path.resolve())


async def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(CapabilityMissing, match="`no-such-command`") as caught:
        await run(["no-such-command"])

    assert caught.value.details == {"command": "no-such-command"}
    assert caught.value.hint


async def test_a_path_that_gives_another_command_is_followed(tmp_path: Path) -> None:
    with pytest.raises(CapabilityMissing, match="`true`"):
        await run(["true"], env={"PATH": str(tmp_path)})


async def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CapabilityMissing, match=r"`true` cannot be started in .*/nowhere"):
        await run(["true"], cwd=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "mode", "hint"),
    [("#!/bin/sh\n", 0o644, "executable"), ("#!/no/such/shell\n", 0o755, "install"), ("hi", 0o755, "#!")],
    ids=["mode", "interpreter", "format"],
)
async def test_a_file_that_cannot_be_executed_is_named(tmp_path: Path, text: str, mode: int, hint: str) -> None:
    script = tmp_path / "script"
    script.write_text(text)
    script.chmod(mode)

    with pytest.raises(CapabilityMissing, match="script` cannot be started") as caught:
        await run([str(script)])

    assert hint in str(caught.value.hint)


# Ending


async def test_a_long_lived_command_answers_on_its_pipes() -> None:
    async with open_process(["cat"], stdin=True) as process:
        assert process.stdin
        await process.stdin.send(b"ping\n")
        answer = await process.stdout.receive()
        alive = psutil.Process(process.pid).name(), process.returncode

    assert answer == b"ping\n"
    assert alive == ("cat", None)
    assert process.returncode in {0, -signal.SIGTERM}, "as the end of its stdin or the signal came first"


async def test_a_command_may_follow_the_end_of_its_stdin() -> None:
    async with open_process(["cat"], stdin=True, eof_s=3.0) as process:
        await process.end()

    assert process.returncode == 0


async def test_a_command_is_asked_once_and_may_take_its_leave() -> None:
    script = 'trap "echo bye; sleep 0.1; exit 7" TERM; echo ready; while :; do sleep 0.02; done'
    async with open_process(["sh", "-c", script]) as process:
        assert await process.stdout.receive() == b"ready\n"
        await process.end()
        rest = b"".join([chunk async for chunk in process.stdout])

    assert process.returncode == 7
    assert rest == b"bye\n"


@attack(
    "server",
    "ignores SIGTERM, forks twice, starts sessions of its own and wipes its environment",
    "every process of the tree is dead after the end",
)
@on_linux
async def test_all_who_ignore_sigterm_are_dead_after_end(folder: Path) -> None:
    async with open_process(family(folder), grace_s=0.2) as process:
        await anyio.to_thread.run_sync(wait_until_up, folder)
        assert process.pid == pids_in(folder)["child"]
        assert survivors(folder) == NAMES
        await process.end()

        assert not survivors(folder)
        assert process.returncode == -signal.SIGKILL


@on_linux
async def test_all_are_dead_when_a_run_is_cancelled(folder: Path) -> None:
    async with anyio.create_task_group() as tasks:
        await start_running(tasks, folder)
        tasks.cancel_scope.cancel()

    assert set(pids_in(folder)) == NAMES
    assert not survivors(folder)


async def start_running(tasks: anyio.abc.TaskGroup, folder: Path) -> None:
    async def run_family() -> None:
        await run(family(folder), grace_s=0.2)

    tasks.start_soon(run_family)
    await anyio.to_thread.run_sync(wait_until_up, folder)


@on_linux
async def test_all_are_dead_when_a_run_takes_too_long(folder: Path) -> None:
    with pytest.raises(TimeoutError), anyio.fail_after(20) as scope:
        await run(
            family(folder),
            grace_s=0.2,
            on_line=lambda *_: setattr(scope, "deadline", anyio.current_time() + 0.1),
        )

    assert set(pids_in(folder)) == NAMES
    assert not survivors(folder)


@on_linux
async def test_all_are_dead_when_a_task_is_cancelled_without_anyio(
    folder: Path, left: Callable[[], set[psutil.Process]]
) -> None:
    task = asyncio.create_task(run(family(folder), grace_s=0.2))
    await anyio.to_thread.run_sync(wait_until_up, folder)
    task.cancel()
    await anyio.sleep(0.05)  # the first is being followed
    task.cancel("a second time, while the first is being followed")
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not survivors(folder)
    assert not left()


@on_linux
async def test_what_a_finished_command_left_is_gone(folder: Path) -> None:
    finished = await run(family(folder, "leave"), grace_s=0.2)

    assert finished.returncode == 0
    assert finished.stdout == "ready\n"
    assert set(pids_in(folder)) == NAMES - {"child"}
    assert not survivors(folder)


@on_linux
async def test_what_a_long_lived_command_left_goes_with_it(folder: Path) -> None:
    async with open_process(family(folder, "leave"), grace_s=0.2) as process:
        await process.wait()
        await anyio.to_thread.run_sync(wait_for_death, folder)

        assert not survivors(folder)


async def test_what_is_left_may_finish_its_writing() -> None:
    finished = await run(["sh", "-c", "(sleep 0.02; echo late) & echo early"])

    assert finished.stdout == "early\nlate\n"


async def test_cancelling_the_start_leaves_nothing(left: Callable[[], set[psutil.Process]]) -> None:
    with anyio.move_on_after(0):
        await run(["sleep", "60"])
    with anyio.move_on_after(0.003):
        await run(["sleep", "60"])

    assert not left()


async def test_ending_twice_and_at_once_is_ending_once() -> None:
    async with open_process(["sleep", "60"]) as process:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.end)
            tasks.start_soon(process.end)
        await process.end()

    assert process.returncode == -signal.SIGTERM
    assert await process.wait() == -signal.SIGTERM


async def test_a_process_already_gone_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with open_process(["true"], stdin=True) as process:
            assert await process.wait() == 0
            await anyio.sleep(0.05)  # its end has been noticed
            await process.end()

    assert not caplog.records


async def test_who_waits_for_output_is_told_that_it_was_closed() -> None:
    outcome: list[type[Exception]] = []

    async def read(process: process_tree.Process) -> None:
        try:
            await process.stdout.receive()
        except (anyio.ClosedResourceError, anyio.EndOfStream) as error:
            outcome.append(type(error))

    async with anyio.create_task_group() as tasks, open_process(["sleep", "60"]) as process:
        tasks.start_soon(read, process)
        await anyio.wait_all_tasks_blocked()

    assert len(outcome) == 1


@on_linux
async def test_no_zombies_and_no_descriptors_are_left(folder: Path, left: Callable[[], set[psutil.Process]]) -> None:
    async def use_everything() -> None:
        await run(["echo", "hi"], input=b"x")
        async with open_process(["sleep", "60"], stdin=True):
            pass
        for wrong in (["no-such-command"], [str(folder)]):
            with pytest.raises(CapabilityMissing):
                await run(wrong)
        with anyio.move_on_after(0.005):
            await run(["sleep", "60"])

    await use_everything()
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    await use_everything()
    gc.collect()

    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert not left()


# When something is killed that should not have been


@attack(
    "server",
    "outlives a gateway that was killed, by the same means",
    "every process of the tree is dead soon after",
)
@on_linux
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_all_are_dead_soon_after_the_gateway_was_killed(folder: Path, loop: str) -> None:
    gateway = subprocess.Popen([sys.executable, str(VICTIMS / "gateway.py"), str(folder), loop])
    wait_until_up(folder)
    assert survivors(folder) == NAMES
    gateway.kill()
    gateway.wait()
    wait_for_death(folder)

    assert not survivors(folder)


# What becomes of a tree whose reaper is killed or stopped is in tests/hostile/test_reapers.py.


@on_linux
async def test_a_reaper_and_a_guard_that_hang_do_not_hold_up_the_end(
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    left: Callable[[], set[psutil.Process]],
) -> None:
    monkeypatch.setattr(process_posix, "END_LIMIT_S", 1.5)
    async with open_process(family(folder), grace_s=0.2) as process:
        await anyio.to_thread.run_sync(wait_until_up, folder)
        reaper = psutil.Process(process.pid).parent()
        guard = reaper.parent() if reaper else None
        assert reaper is not None
        assert guard is not None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, keep_stopped, guard, reaper)
            with anyio.fail_after(30):
                await process.end()

    assert not survivors(folder)
    assert "did not end it in time" in caplog.text
    assert not left()


def test_strays_are_killed_though_their_time_is_over() -> None:
    stray = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    try:
        process_strays.end_strays([psutil.Process(stray.pid)], "a cookie", 5.0, time.monotonic() - 1)
        ended = stray.wait(60)
    finally:
        stray.kill()
        stray.wait()

    assert ended == -signal.SIGKILL


def keep_stopped(*processes: psutil.Process) -> None:
    """Stop processes again and again, until they are gone."""
    try:
        while True:
            for process in processes:
                process.send_signal(signal.SIGSTOP)
            time.sleep(0.001)
    except psutil.NoSuchProcess:
        return


@pytest.mark.usefixtures("no_subreaper")
async def test_without_a_subreaper_all_are_dead_who_keep_their_environment(folder: Path) -> None:
    async with open_process(family(folder), grace_s=0.2):
        await anyio.to_thread.run_sync(wait_until_up, folder)

    assert survivors(folder) <= {"wiped"}


@pytest.mark.usefixtures("no_subreaper")
async def test_without_a_subreaper_a_finished_command_leaves_nothing(folder: Path) -> None:
    finished = await run(family(folder, "leave"), grace_s=0.2)

    assert finished.stdout == "ready\n"
    assert survivors(folder) <= {"wiped"}


@pytest.mark.usefixtures("no_subreaper")
async def test_without_a_subreaper_a_plain_command_ends_as_asked() -> None:
    async with open_process(["sh", "-c", "setsid sleep 60 & sleep 60"]) as process:
        await until(lambda: psutil.Process(process.pid).children())
    finished = await run(["echo", "hi"])

    assert process.returncode == -signal.SIGTERM
    assert finished.stdout == "hi\n"


async def test_who_cannot_be_killed_is_warned_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(process: psutil.Process, number: int) -> None:
        raise psutil.AccessDenied(process.pid)

    cookie = os.urandom(8).hex()
    with subprocess.Popen(["sleep", "60"], env={process_order.COOKIE: cookie}) as sleeper:
        monkeypatch.setattr(psutil.Process, "send_signal", refuse)
        process_strays.end_strays([], cookie, 0.0, time.monotonic() + 0.2)
        sleeper.kill()

    assert [record.__dict__["pid"] for record in caplog.records] == [sleeper.pid]
    assert f"process {sleeper.pid} could not be ended" in caplog.text
