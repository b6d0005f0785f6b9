"""Parts of the SDK that are loaded at the same time, in a process of its own: here it is loaded already."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.wire

SCRIPT = """
import sys, time
import anyio
from toolpost.base.late_import import import_in_thread

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("mcp"):
            time.sleep(0.01)  # So that the threads meet in the middle.

sys.meta_path.insert(0, Slow())

async def load_all():
    async with anyio.create_task_group() as tasks:
        for name in ("credentials.token_requests", "endpoints.sdk.server"):
            tasks.start_soon(import_in_thread, f"toolpost.{name}")
        tasks.start_soon(import_in_thread, "mcp.client.sse")

anyio.run(load_all)
"""


def test_parts_of_the_sdk_can_be_loaded_at_the_same_time() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)

    assert ran.returncode == 0, ran.stderr[-2000:]
