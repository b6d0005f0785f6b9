"""`toolpost serve --reload`: a saved file is served at once, to clients that stay connected; a broken one changes nothing."""

import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.cli.conftest import TOOLPOST, Run
from tests.ways import STATELESS, WAYS, Way

pytestmark = [pytest.mark.anyio, pytest.mark.wire, pytest.mark.soak]

PLUGIN = """
from collections.abc import AsyncIterator
from toolpost import Plugin

plugin = Plugin("notes", style="plain")


class State:
    pass


@plugin.lifespan
async def live() -> AsyncIterator[State]:
    print("opened WORD", flush=True)
    yield State()
    print("closed WORD", flush=True)


@plugin.tool
async def say(state: State) -> str:
    "Say a word."
    return "WORD"
"""
MORE = """

@plugin.tool
async def more() -> str:
    "Say more."
    return "more"
"""
RAISES = """

@plugin.tool
async def fall() -> str:
    "Raise."
    raise KeyError("mine")
"""


class Output:
    """What `toolpost serve --reload` and its plugin print: to files, since nothing reads pipes while a client waits."""

    def __init__(self, folder: Path) -> None:
        self.out, self.err = folder / "out.txt", folder / "err.txt"

    @property
    def text(self) -> str:
        return "".join(path.read_text() for path in (self.out, self.err) if path.exists())

    async def wait_for(self, pattern: str) -> str:
        with anyio.fail_after(20):
            while (found := re.search(pattern, self.text)) is None:
                await anyio.sleep(0.05)
        return found[0]


@asynccontextmanager
async def open_dev(way: Way, folder: Path, environment: dict[str, str], on_message: Any) -> AsyncIterator[Client]:
    """Run `toolpost serve --reload` and open a client of it; leaving ends both."""
    output = Output(folder)
    command = ["serve", "--reload", "--plugin", "dev_notes:plugin"]
    with output.err.open("w") as err, output.out.open("w") as out:
        if way.transport == "stdio":
            started = StdioServerParameters(
                command=TOOLPOST, args=[*command, "--stdio"], env=dict(environment), cwd=folder
            )
            async with Client(stdio_client(started, errlog=err), mode=way.mode, message_handler=on_message) as client:
                yield client
            return
        arguments = [TOOLPOST, *command, "--listen", "127.0.0.1:0", "--json"]
        with subprocess.Popen(arguments, cwd=folder, env=environment, stdout=out, stderr=err) as process:
            try:
                url = await output.wait_for(r"http://[\d.:]+/mcp")
                async with Client(streamable_http_client(url), mode=way.mode, message_handler=on_message) as client:
                    yield client
                process.terminate()
                await anyio.to_thread.run_sync(process.wait)
            finally:
                process.kill()


@pytest.mark.parametrize("way", [way for way in WAYS if way.transport != "memory"], ids=str)
async def test_a_saved_file_is_served_to_the_same_session(
    way: Way, tmp_path: Path, environment: dict[str, str]
) -> None:
    code, output = tmp_path / "dev_notes.py", Output(tmp_path)
    code.write_text(PLUGIN.replace("WORD", "one"))
    changed = anyio.Event()

    async def on_message(message: Any) -> None:
        if "list_changed" in str(message):
            changed.set()

    async with open_dev(way, tmp_path, environment, on_message) as client:

        async def say() -> str:
            return (await client.call_tool("notes__say", {})).content[0].text  # type: ignore[union-attr]

        assert await say() == "one"

        async with anyio.create_task_group() as tasks:
            if way.mode == STATELESS:
                await tasks.start(follow_tools, client, changed)
            code.write_text(PLUGIN.replace("WORD", "two") + MORE)
            with anyio.fail_after(20):
                await changed.wait()
            tasks.cancel_scope.cancel()
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["notes__more", "notes__say"]
        assert await say() == "two"

        code.write_text(PLUGIN.replace("WORD", "three") + "\n\n@plugin.tool\nasync def bad(x) -> str:\n    return x\n")
        await output.wait_for("not loaded")
        assert "Traceback" in output.text
        assert "tool `bad`: `x` has no type hint" in output.text
        assert f"({code}:25)" in output.text
        assert "site-packages" not in output.text
        assert "src/toolpost" not in output.text
        assert await say() == "two", "the last good one is served"

        code.write_text(PLUGIN.replace("WORD", "four") + RAISES)
        with anyio.fail_after(20):
            while await say() != "four":
                await anyio.sleep(0.1)
        assert (await client.call_tool("notes__fall", {})).is_error
        await output.wait_for(r'Traceback[^¬]*raise KeyError\("mine"\)[^¬]*KeyError')
        assert not re.findall(r'File "[^"]*(?:site-packages|src/toolpost)[^"]*"', output.text), (
            "the author's lines alone"
        )
    assert re.findall(r"(?:opened|closed) \w+", output.text) == [
        "opened one", "opened two", "closed one", "opened four", "closed two", "closed four",
    ]  # fmt: skip


async def follow_tools(client: Client, changed: anyio.Event, *, task_status: Any) -> None:
    async with client.listen(tools_list_changed=True) as subscription:
        task_status.started()
        async for _ in subscription:
            changed.set()


def test_stdio_has_no_address(invoke: Run) -> None:
    refused = invoke("serve", "--reload", "--plugin", "dev_notes:plugin", "--stdio", "--listen", "127.0.0.1:0")
    assert refused.code == 2
    assert "--stdio cannot be used with --listen" in refused.err


def test_without_a_plugin_there_is_nothing_to_serve(invoke: Run) -> None:
    refused = invoke("serve", "--reload")
    assert refused.code == 2
    assert "there is no plugin to reload" in refused.err
