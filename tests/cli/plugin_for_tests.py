"""Plugins that the tests of the command load: one that works, one that fails, one with a tool that is refused."""

import asyncio
import os
import sys
import time
from pathlib import Path

from toolpost import Context, Keyed, NotFound, Plugin, Result

plugin = Plugin("demo", version="2.5.0")
partly = Plugin("partly", version="1.0.0")
failing = Plugin("failing")

SIZE = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}


@plugin.tool(
    title="Echo",
    description="Gives back what it is given. Nothing else.",
    input_schema={
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "Any text"},
            "count": {"type": "integer", "default": 1},
            "ratio": {"type": ["number", "null"]},
            "loud": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "numbers": {"type": "array", "items": {"$ref": "#/$defs/number"}},
            "size": {"$ref": "#/$defs/size"},
            "level": {"enum": [1, 2, 3]},
        },
        "$defs": {"size": SIZE, "number": {"type": "number"}},
        "required": ["text"],
    },
    output_schema={"type": "object"},
    aliases=["repeat"],
)
async def echo(arguments: dict[str, object]) -> dict[str, object]:
    """Echo."""
    return arguments


@plugin.tool(timeout_s=30, concurrency=Keyed("steps"))
async def steps(ctx: Context, steps: int = 3, pause_s: float = 0.4) -> str:
    """Take a few steps, and tell of each."""
    for number in range(1, steps + 1):
        ctx.progress(number, steps, f"step {number}")
        await asyncio.sleep(pause_s)
    return "done"


@plugin.tool
async def babble(ctx: Context) -> str:
    """Say more than fits on a line."""
    ctx.progress(3, 10, "downloading https://example.org/a/long\npath/" + "of-many-parts/" * 10)
    await asyncio.sleep(0.5)
    return "done"


@plugin.tool
async def fail() -> str:
    """Fail."""
    raise RuntimeError("the disk is on fire")


@plugin.tool
async def miss() -> str:
    """Look for what is not there."""
    raise NotFound("There is no such page.", hint="look elsewhere")


@plugin.tool(timeout_s=0.2)
async def late() -> str:
    """Take too long."""
    await asyncio.sleep(30)
    return "too late"


@plugin.tool(input_schema={"type": "object", "properties": {}}, output_schema={"type": "string"})
async def lie(arguments: dict[str, object]) -> int:
    """Promise a text and return a number."""
    return 5


@plugin.tool
def stuck() -> str:
    """Block a thread for good."""
    time.sleep(600)
    return "never"


@plugin.tool
def chat() -> str:
    """Print, as careless tools do."""
    print("I was printed")
    return "said"


@plugin.tool
async def child(ctx: Context, pid_file: str) -> str:
    """Start a process that would outlive its welcome."""
    code = f"import os, time; open({pid_file!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    await ctx.run([sys.executable, "-c", code], cwd=Path(pid_file).parent)
    return "never"


@plugin.tool
async def picture() -> Result:
    """Return more than data."""
    return Result(data=1, content=[{"type": "image", "data": "aGk=", "mimeType": "image/png"}])


@plugin.tool
async def album() -> Result:
    """Return one of each kind, and some that want to choose where they go."""
    return Result(
        data=2,
        content=[
            {"type": "text", "text": "a caption"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/mpeg"},
            {"type": "image", "data": "aGk=", "mimeType": "../../evil.sh"},
            {"type": "image", "data": "not base64!", "mimeType": "image/png"},
            {
                "type": "resource",
                "resource": {"uri": "file:///../../x.py", "mimeType": "Text/HTML; a=b", "blob": "aGk="},
            },
            {"type": "resource", "resource": {"uri": "file:///n.txt", "text": "plain words"}},
            {"type": "resource_link", "uri": "https://example.org/a", "name": "a page"},
        ],
    )


@plugin.tool
async def leak() -> str:
    """Fail with what the environment holds, in the words of a library."""
    raise RuntimeError(f"cannot log in with {os.environ['DEMO_SECRET']}")


@plugin.tool
def blocking_fail(path: str) -> str:
    """Fail inside a thread, two frames deep."""
    return _read_lines(path)


def _read_lines(path: str) -> str:
    return Path(path).read_text()


@plugin.tool(style="plain")
async def plainly(count: int = 2) -> list[int]:
    """Return a bare list."""
    if count < 0:
        raise NotFound("There are no fewer than none.")
    return list(range(count))


@plugin.tool(style="plain")
async def say(text: str) -> str:
    """Return a text."""
    return text


@plugin.tool
async def steer() -> str:
    """Try to steer the \x1b[31mterminal."""
    raise RuntimeError("\x1b[2Jgone")


@partly.tool(input_schema={"type": "object", "properties": {"a": {"type": "nonsense"}}})
async def refused(arguments: dict[str, object]) -> None:
    """Be refused."""


@partly.tool
async def fine() -> int:
    """Serve all the same."""
    return 1


@failing.on_start
def _explode() -> None:
    raise RuntimeError("no licence")
