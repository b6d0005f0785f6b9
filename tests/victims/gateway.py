"""A gateway to be killed: holds a family of victims open on the loop that it is told."""

import sys
from pathlib import Path

import anyio

from toolpost.processes.tree import open_process


async def main(folder: str) -> None:
    family = Path(__file__).with_name("family.py")
    async with open_process([sys.executable, "-S", str(family), folder, "stay"], grace_s=0.2) as process:
        await process.wait()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], backend_options={"use_uvloop": sys.argv[2] == "uvloop"})
