"""A program that runs in a fork is, to the process that started it, a process like any other."""

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.loaded import forked, loaded, loaded_toolpost

pytestmark = pytest.mark.wire


def test_it_has_its_arguments_pipes_folder_environment_and_exit_code(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, sys\nprint(sys.argv[1:], os.getcwd(), os.environ['A'], input())\nsys.exit('no')")
    command = loaded(str(program), "a", "b")
    done = subprocess.run(command, input=b"x\n", cwd=tmp_path, env={"A": "1"}, capture_output=True, timeout=60)

    assert done.stdout.decode() == f"['a', 'b'] {tmp_path} 1 x\n"
    assert (done.stderr, done.returncode) == (b"no\n", 1)


def test_what_is_killed_is_gone(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)")
    with subprocess.Popen(loaded(str(program)), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        server = psutil.Process(int(process.stdout.readline()))
        process.kill()

    assert psutil.wait_procs([server], timeout=30)[1] == []


def test_a_crash_is_one_to_whoever_started_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os\nos._exit(7)")

    assert subprocess.run(loaded(str(program)), timeout=60).returncode == 7
    assert psutil.Process(os.getpid()).children(recursive=True) == []


def test_signals_reach_the_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import signal, sys\nsignal.signal(signal.SIGHUP, lambda *_: print('again', flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\nprint('ready', flush=True)\nwhile True: signal.pause()"
    )
    with subprocess.Popen(loaded(str(program)), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        again = process.stdout.readline()
        process.terminate()
        code = process.wait(60)

    assert (ready, again, code) == ("ready\n", "again\n", 5)


def test_a_program_that_a_signal_ends_is_seen_to_end_by_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)")

    assert subprocess.run(loaded(str(program)), timeout=60).returncode == -signal.SIGTERM


def test_toolpost_is_itself(tmp_path: Path) -> None:
    fine = subprocess.run(loaded_toolpost("tools", "--json"), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    wrong = subprocess.run(loaded_toolpost("no-such-command"), capture_output=True, text=True, timeout=60)

    assert (fine.returncode, fine.stderr) == (0, "")
    assert "time__current_time" in fine.stdout
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("error: unknown command `no-such-command`")


def test_a_fork_is_held_like_a_process(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\nprint(os.getpid(), input(), flush=True)\nos.kill(os.getpid(), 0)\ninput()\nsys.exit(3)"
    )
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with forked.start([str(program)], cwd=tmp_path, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("x\n")
        process.stdin.flush()
        said = process.stdout.readline()
        ran = process.poll()
        out, err = process.communicate("y\n", timeout=60)

    assert (said, ran, process.returncode) == (f"{process.pid} x\n", None, 3)
    assert (out, err) == ("", "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_fork_is_ended_by_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    program = tmp_path / "program.py"
    program.write_text("import time\nprint(1, flush=True)\ntime.sleep(600)")
    with forked.start([str(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        code = process.wait(60)

    assert code == -number
    assert not psutil.pid_exists(process.pid)
