"""Tools that take their time, and leave a mark each time they are run."""

from pathlib import Path

import anyio

from toolpost import Context, Plugin

plugin = Plugin("errands", version="1.0.0")


@plugin.tool
async def echo(text: str) -> str:
    """Say it back."""
    return text


def _mark(folder: str, what: str) -> None:
    with (Path(folder) / "marks").open("a") as marks:
        marks.write(f"{what}\n")


async def _until_told(folder: str) -> None:
    while not (Path(folder) / "go").exists():
        await anyio.sleep(0.02)


@plugin.tool(annotations={"idempotentHint": True}, timeout_s=60)
async def again(folder: str) -> str:
    """May be run again: wait until the file `go` is there."""
    _mark(folder, "again")
    await _until_told(folder)
    return "done"


@plugin.tool(timeout_s=60)
async def once(folder: str, ctx: Context) -> str:
    """Must not be run twice: wait until the file `go` is there."""
    _mark(folder, "once")
    ctx.progress(0.5, 1, "half of it")
    await _until_told(folder)
    return "done"


@plugin.tool(timeout_s=0.2)
async def late() -> str:
    """Take too long."""
    await anyio.sleep(60)
    return "never"
