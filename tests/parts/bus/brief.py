"""`toolpost` with other times of the bus than it has: they are constants, and a test cannot patch another process."""

import json
import sys

from tests.loaded import can_fork
from toolpost.cli.main import main
from toolpost.parts.bus.commands import serve
from toolpost.parts.bus.tasks import BusPolicy


def brief_toolpost(**times: float) -> list[str]:
    """Return a program for `forked.start`: `toolpost`, to which its arguments are added."""
    return [*([] if can_fork() else [sys.executable]), __file__, json.dumps(times)]


def shorten(times: dict[str, float]) -> None:
    serve.IDLE_S = times.pop("idle_s", serve.IDLE_S)  # type: ignore[misc]
    BusPolicy.__init__.__kwdefaults__.update(times)  # type: ignore[union-attr]


if __name__ == "__main__":
    shorten(json.loads(sys.argv.pop(1)))
    main(prog_name="toolpost")
