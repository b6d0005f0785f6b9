"""Tools that behave in every way a tool may: quick, slow, stuck, failing, chatty, exclusive."""

import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import anyio
from pydantic import BaseModel, Field, field_validator

from toolpost import CapabilityMissing, Context, Keyed, NotFound, Plugin, Result, tool

plugin = Plugin("does", version="2.1.0")

PRESENT: dict[str, int] = {}
MET: set[str] = set()
STARTED: list[str] = []
BLOCKED: list[float] = []
"""Seconds for which threads are blocked now."""


@asynccontextmanager
async def _alone(key: str) -> AsyncIterator[None]:
    PRESENT[key] = PRESENT.get(key, 0) + 1
    if PRESENT[key] > 1:
        MET.add(key)
    try:
        yield
    finally:
        PRESENT[key] -= 1


@plugin.tool
async def echo(text: str) -> str:
    """Say it back."""
    return text


@plugin.tool(timeout_s=0.3)
async def late(seconds: float) -> str:
    """Sleep past a short time limit."""
    await anyio.sleep(seconds)
    return "done"


@plugin.tool(timeout_s=30)
async def sleep(seconds: float, name: str = "") -> str:
    """Sleep."""
    STARTED.append(name)
    await anyio.sleep(seconds)
    return "done"


@plugin.tool(timeout_s=0.3)
def block(seconds: float) -> str:
    """Block a thread, deaf to everything."""
    BLOCKED.append(seconds)
    time.sleep(seconds)
    BLOCKED.remove(seconds)
    return "done"


@plugin.tool
def add(a: int, b: int) -> int:
    """Add, synchronously."""
    return a + b


@plugin.tool(concurrency="serial", timeout_s=30)
async def serial(seconds: float = 0.0, name: str = "") -> bool:
    """Must not meet itself."""
    STARTED.append(name)
    async with _alone("serial"):
        await anyio.sleep(seconds)
    return "serial" in MET


@plugin.tool(concurrency="serial", timeout_s=2)
async def serial_short(seconds: float) -> bool:
    """Must not meet itself, and has little time."""
    await anyio.sleep(seconds)
    return True


@plugin.tool(concurrency=Keyed("repo"), timeout_s=30)
async def keyed(repo: str, seconds: float = 0.0) -> dict[str, Any]:
    """Must not meet itself on the same repository."""
    async with _alone(repo):
        side_by_side = sum(count for key, count in PRESENT.items() if key != "serial")
        await anyio.sleep(seconds)
    return {"met": repo in MET, "sideBySide": side_by_side}


@plugin.tool
async def explode(message: str = "boom") -> str:
    """Raise."""
    raise RuntimeError(message)


@plugin.tool
async def missing() -> str:
    """Raise an error of the table."""
    raise NotFound("There is no such thread.", hint="list them first", thread="t1")


@plugin.tool
async def incapable() -> str:
    """Raise an operator's error."""
    raise CapabilityMissing("`bd` is not installed.", hint="install beads")


@plugin.tool(timeout_s=30)
async def chatter(count: int, ctx: Context, pause: float = 0.0) -> int:
    """Report progress far too often."""
    for number in range(count):
        ctx.progress(number + 1, count, f"step {number + 1}", phase="count")
        await anyio.sleep(pause)
    return count


@plugin.tool(timeout_s=30)
def chatter_in_thread(count: int, ctx: Context) -> int:
    """Report progress from a thread."""
    for number in range(count):
        ctx.progress(number + 1, count, f"step {number + 1}")
        time.sleep(0.01)
    return count


@plugin.tool(timeout_s=30)
async def clean_up(ctx: Context, steps: int = 20) -> str:
    """Report progress until it is cancelled, and for a second more, or as many steps of 50 ms."""
    try:
        while True:
            ctx.progress(message="at work")
            await anyio.sleep(0.05)
    finally:
        with anyio.CancelScope(shield=True):
            for number in range(steps):
                ctx.progress(message=f"cleaning up {number}")
                await anyio.sleep(0.05)


@plugin.tool(timeout_s=30)
async def late_progress(ctx: Context) -> str:
    """Report progress after the answer was given."""

    async def nag() -> None:
        await anyio.sleep(0.2)
        ctx.progress(99, message="too late")

    import asyncio

    STARTED.append("nag")
    task = asyncio.get_running_loop().create_task(nag())
    task.add_done_callback(lambda _: STARTED.append("nagged"))
    return "done"


@plugin.tool(timeout_s=30)
async def run(command: list[str], ctx: Context) -> str:
    """Run a command."""
    return (await ctx.run(command)).stdout


@plugin.tool(timeout_s=2.0)
async def run_short(command: list[str], ctx: Context) -> str:
    """Run a command with little time."""
    return (await ctx.run(command)).stdout


@plugin.tool(timeout_s=2.0)
def run_from_thread(command: list[str], ctx: Context) -> str:
    """Run a command from a synchronous tool."""
    return anyio.from_thread.run(ctx.run, command).stdout


@plugin.tool
async def noisy() -> str:
    """Print, as careless tools do."""
    print("this would break the protocol")
    os.write(1, b"and this too\n")
    return sys.stdin.read()


class Address(BaseModel):
    """A place."""

    street: str
    zip: Annotated[str, Field(pattern="^[0-9]{5}$")]


@dataclass
class Parcel:
    """What is sent."""

    to: str
    weight: float


@plugin.tool
async def ship(
    parcels: list[Parcel],
    address: Address,
    speed: Literal["slow", "fast"] = "slow",
    insurance: Annotated[int | None, Field(ge=0, description="euros")] = None,
) -> dict[str, Any]:
    """Take structured arguments and give them as Python objects to the function."""
    return {
        "types": [type(parcels[0]).__name__, type(address).__name__],
        "zip": address.zip,
        "speed": speed,
        "insurance": insurance,
    }


@plugin.tool(
    style="plain", output_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
)
async def plain(n: int) -> dict[str, Any]:
    """Answer without an envelope."""
    if n < 0:
        raise ValueError("negative")
    return {"n": n if n < 100 else "many"}


@tool(style="plain", input_schema={"type": "object", "properties": {"list": {"type": "boolean"}}})
async def plain_text(arguments: dict[str, Any]) -> Any:
    """Answer with text alone, or a list."""
    return [1, 2] if arguments.get("list") else "just text"


plugin.add(plain_text)


@plugin.tool
async def picture() -> Result:
    """Answer with an image beside the data."""
    return Result(data={"width": 1}, content=[{"type": "image", "data": "aGk=", "mimeType": "image/png"}])


@plugin.tool
async def not_json() -> Any:
    """Return something that is not JSON."""
    return object()


@plugin.tool(input_schema={"type": "object"})
async def nothing(arguments: dict[str, Any]) -> str:
    """Take nothing."""
    return f"{len(arguments)} arguments"


@plugin.tool(
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "top": {"type": "integer", "minimum": 1, "default": 5},
            "mode": {"enum": ["code", "prose", "both"]},
            "cursor": {"type": "string", "x-reserved": True},
        },
        "required": ["query"],
    }
)
async def search(arguments: dict[str, Any]) -> dict[str, Any]:
    """Search nothing in particular."""
    return {"query": arguments["query"], "top": arguments.get("top", 5), "mode": arguments.get("mode", "both")}


@plugin.tool
async def awkward(kind: str, ctx: Context) -> Any:
    """Return, report or raise what JSON cannot carry."""
    ctx.progress(1, message="half a pair \ud800")
    if kind == "error":
        raise NotFound("no \ud800 file", path=object(), names={"a"})
    if kind == "number":
        return {"n": float("nan")}
    return {"name": "\ud800"} if kind == "surrogate" else {"deep": _nested(5000)}


def _nested(depth: int) -> Any:
    made: Any = []
    for _ in range(depth):
        made = [made]
    return made


@plugin.tool
async def stray(kind: str) -> str:
    """Raise what ends a task, a thread or a process."""
    if kind == "cancelled":
        import asyncio

        task = asyncio.get_running_loop().create_task(anyio.sleep(10))
        task.cancel()
        await task
    if kind == "group":
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_not_found)
    sys.exit(3)


async def _not_found() -> None:
    raise NotFound("Not in this group.")


@plugin.tool
def stray_in_thread() -> str:
    """Leave the process, from a thread."""
    sys.exit("bye")


@plugin.tool
async def blocks(kind: str) -> Result:
    """Return blocks that no client takes."""
    wrong: dict[str, Any] = {
        "type": {"type": "hologram"},
        "field": {"type": "image", "data": "x"},
        "json": {"type": "text", "text": object()},
        "object": object(),
    }
    return Result(data=1, content=[wrong[kind]])


class Login(BaseModel):
    """Refuses what its schema allows."""

    password: str

    @field_validator("password")
    @classmethod
    def _strong(cls, value: str) -> str:
        if value == "hunter2":
            raise ValueError("too well known")
        return value


@plugin.tool
async def login(login: Login) -> str:
    """Check a password."""
    return "in"


class Renamed(BaseModel):
    """Has another name on the wire."""

    in_python: int = Field(alias="onTheWire")


@plugin.tool
async def renamed(schema: int, _x: int, copy: int, model_config: int) -> Renamed:
    """Take arguments whose names pydantic keeps for itself."""
    return Renamed(onTheWire=schema + _x + copy + model_config)


@plugin.tool(
    input_schema={
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    }
)
async def mirrored(arguments: dict[str, Any]) -> str:
    """Take an argument that clients of the stateless era repeat in a header."""
    return str(arguments["region"])
