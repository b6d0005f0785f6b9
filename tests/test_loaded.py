"""A program that runs in a fork is, to whoever started it, a process like any other."""

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.loaded import loaded

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
