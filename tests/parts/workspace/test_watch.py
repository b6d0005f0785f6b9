"""An index that follows its repository: what changes is found without anybody building, and nothing stays behind."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psutil
import pytest
from mcp import Client, StdioServerParameters

from tests.loaded import forked
from tests.parts.workspace.repos import FILES, MEMORY, USERS, build, make_repo, paths, write
from tests.parts.workspace.test_ends import builder, builders_beneath, many, nobody_left
from tests.waiting import until
from tests.ways import IN_MEMORY, QUICK_WAYS, STATELESS, TOOLPOST, Way, server_environment
from toolpost.app import open_app
from toolpost.parts.workspace import watch
from toolpost.parts.workspace.generations import read_pointer
from toolpost.parts.workspace.settings import WorkspaceSettings
from toolpost.parts.workspace.spec import spec_of
from toolpost.parts.workspace.watch import folders_to_watch
from toolpost.testing import data_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

SETTLE_S = 0.1


@asynccontextmanager
async def watched(root: Path, way: Way = MEMORY, **settings: Any) -> AsyncIterator[Client]:
    """Serve the tools that are bundled, in a project whose code is watched."""
    chosen = WorkspaceSettings(watch=True, **{"settle_s": SETTLE_S, **settings})
    config = msgspec.structs.replace(IN_MEMORY, project=str(root), parts={"workspace": chosen})
    async with open_app(config) as app, way.client_of(app) as client:
        yield client


async def found(client: Client, query: str, *expected: str) -> None:
    """Wait until these files, and no others, are where a query leads, and none of them is stale."""

    async def is_found() -> bool:
        answer = await client.call_tool("workspace__search", {"query": query})
        if answer.is_error:
            return False
        data = data_of(answer)
        return {hit["path"] for hit in data["hits"]} == set(expected) and data["stale"] == []

    await until(is_found)


async def state_of(client: Client) -> Any:
    return data_of(await client.call_tool("workspace__index_status", {}))["watch"]


async def in_state(client: Client, state: str) -> None:
    async def is_in_it() -> bool:
        return bool((await state_of(client))["state"] == state)

    await until(is_in_it)


async def test_what_changes_is_found(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "shop", {**FILES, ".gitignore": "made/\n"})
    async with watched(root, QUICK_WAYS[-1]) as client:
        await found(client, "UserStore", "src/users.py")

        write(root, {"src/users.py": USERS.replace("UserStore", "StoreOfUsers"), "made/made.py": "def made(): ...\n"})
        await found(client, "StoreOfUsers", "src/users.py")

        write(root, {"lib/inner/new.py": "def brandNew(): ...\n"})
        await found(client, "brandNew", "lib/inner/new.py")

        (root / "lib").rename(root / "library")
        await found(client, "brandNew", "library/inner/new.py")

        write(root, {"library/inner/more.py": "def evenMore(): ...\n"})
        (root / "library/inner/new.py").unlink()
        await found(client, "evenMore", "library/inner/more.py")
        await found(client, "brandNew")

        write(root, {".gitignore": "library/\n"})
        await found(client, "made", "made/made.py")
        await found(client, "evenMore")
        await in_state(client, "watching")


async def test_an_update_leaves_an_index_at_what_it_holds(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    async with watched(root) as client:
        await in_state(client, "watching")
        await build(client, mode="code")
        write(root, {"docs/more.md": "# Marmalade\n", "src/more.py": "def marmalade(): ...\n"})
        await found(client, "marmalade", "src/more.py")
        status = data_of(await client.call_tool("workspace__index_status", {}))

    assert status["mode"] == "code"


@pytest.mark.parametrize("with_git", [True, False])
async def test_what_is_no_part_of_the_repository_starts_no_build(*, with_git: bool, tmp_path: Path) -> None:
    root = make_repo(tmp_path, {**FILES, ".gitignore": "*.log\nmade/\n"}, with_git=with_git)
    write(root, {"made/a.py": "x = 1\n"})
    async with watched(root, index_dir="kept") as client:
        await found(client, "UserStore", "src/users.py")
        await in_state(client, "watching")
        await anyio.sleep(1.5)  # what the first build itself has stirred up
        (home,) = (root / "kept").iterdir()
        before = read_pointer(home)
        write(root, {"made/b.py": "y = 1\n", "noise.log": "said\n"} if with_git else {"made/b.py": "y = 1\n"})
        await anyio.sleep(1.5)  # what must not come would be here by now

        assert read_pointer(home) == before, "its own files are no change either"
        assert await paths(client, "generation files", path="kept") == []


async def test_a_build_that_fails_is_said_and_tried_again(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "shop")
    kept = tmp_path / "kept"
    async with watched(root, index_dir=str(kept)) as client:
        await found(client, "UserStore", "src/users.py")
        many(root, 100)
        (await builder()).kill()
        await found(client, "Thing99Store", "many/m99.py")
        await in_state(client, "watching")

        kept.rename(tmp_path / "away")
        kept.write_text("no folder")
        write(root, {"src/more.py": "def marmalade(): ...\n"})
        await in_state(client, "failing")
        said = await state_of(client)
        check = data_of(await client.call_tool("workspace__check_status", {}))
        kept.unlink()
        (tmp_path / "away").rename(kept)
        await found(client, "marmalade", "src/more.py")
        await in_state(client, "watching")  # The index is there a moment before its build has ended.
        after = await state_of(client)

    assert "cannot be written" in said["message"]
    assert ("WATCH_FAILING", "shop") in {(warning["code"], warning.get("repo")) for warning in check["warnings"]}
    assert "message" not in after


async def test_where_nothing_can_be_watched_it_is_looked_for_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_repo(tmp_path / "shop")
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    monkeypatch.setattr(watch, "POLL_S", 0.2)
    async with watched(root) as client:
        await found(client, "UserStore", "src/users.py")
        write(root, {"src/more.py": "def marmalade(): ...\n"})
        await found(client, "marmalade", "src/more.py")
        said = await state_of(client)

    assert said == {"state": "polling", "message": "the watcher of files, `watchfiles`, is not installed."}


async def test_a_folder_that_comes_later_is_followed_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL_S", 0.2)
    (tmp_path / "there").mkdir()
    async with watched(tmp_path, roots=["shop"]) as client:
        await in_state(client, "failing")
        make_repo(tmp_path / "shop")
        await found(client, "UserStore", "src/users.py")
        await in_state(client, "watching")
        assert (await client.call_tool("workspace__check_status", {})).structured_content is not None


async def test_callers_builds_and_those_in_the_background_do_not_disturb_each_other(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    async with watched(root) as client:
        for number in range(4):
            write(root, {f"src/n{number}.py": f"def number{number}(): ...\n"})
            built = await build(client, incremental=number % 2 == 0)

            assert built["files"] == 4 + number
            assert await paths(client, f"number{number}") == [f"src/n{number}.py"]


async def test_when_the_server_ends_nothing_of_it_goes_on(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    many(root, 600)
    write(root, {"toolpost.toml": '[plugins]\nbundled = ["workspace"]\n[workspace]\nwatch = true\n'})
    server = StdioServerParameters(
        command=TOOLPOST, args=["serve", "--stdio"], env=server_environment(), cwd=str(tmp_path)
    )
    async with Client(server, mode=STATELESS) as client:
        assert (await state_of(client))["state"] in ("starting", "indexing")
        await builder()
    await nobody_left()

    async with Client(server, mode="legacy") as client:
        await found(client, "Thing599Store", "many/m599.py")


async def test_killed_the_server_takes_its_builds_with_it(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    many(root, 600)
    settings = '[plugins]\nbundled = ["workspace"]\n[workspace]\nwatch = true\n[http]\nlisten = "127.0.0.1:0"\n'
    write(root, {"toolpost.toml": settings})
    command = [TOOLPOST, "serve"]
    with forked.start(command, cwd=root, stderr=subprocess.DEVNULL, env=server_environment()) as process:
        with anyio.fail_after(60):
            while not (left := builders_beneath(process.pid)):
                await anyio.sleep(0.02)
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(left, timeout=30)

    assert alive == []


def test_typed_it_stays_and_says_what_it_does(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "shop")
    write(root, {"toolpost.toml": f"[workspace]\nsettle_s = {SETTLE_S}\n"})
    command = [TOOLPOST, "workspace", "build", "--watch"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    for options in ([], ["--json"]):
        with forked.start([*command, *options], cwd=root, env=server_environment(), **pipes) as process:
            assert process.stderr is not None
            assert process.stdout is not None
            while "watching for changes (Ctrl-C stops it)" not in process.stderr.readline():
                assert process.poll() is None
            first = [process.stdout.readline() for _ in range(1 if options else 2)]
            write(root, {f"src/typed{len(options)}.py": "def typed(): ...\n"})
            update = process.stdout.readline()
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGINT)
            code = process.wait(60)

        assert code == 0
        assert psutil.wait_procs(children, timeout=30)[1] == []
        if options:
            assert json.loads(first[0])["repositories"][0]["unchanged"] == 4
            assert json.loads(update)["repositories"][0]["added"] == 1
        else:
            assert first[0].split()[:2] == ["REPOSITORY", "FILES"]
            assert update.split("  ")[1].startswith("shop: 1 added, 0 changed, 0 renamed, 0 removed in ")


async def test_only_folders_that_can_hold_files_of_the_index_are_watched(tmp_path: Path) -> None:
    files = {**FILES, ".gitignore": "made/\n", "made/deep/a.py": "x\n", "node_modules/a/b.js": "x\n"}
    by_git = make_repo(tmp_path / "git", {**files, ".gitignore": "made/\nnode_modules/\n"})
    make_repo(by_git / "inner", {"sub/a.py": "x\n"})
    by_walking = make_repo(tmp_path / "plain", files, with_git=False)
    for root in (by_git, by_walking):
        (root / "empty/folder").mkdir(parents=True)
        (root / "link").symlink_to(tmp_path)
        found_there = folders_to_watch(spec_of(root, ["."]).repositories[0])

        names = {Path(folder).relative_to(root).as_posix() for folder in found_there}
        assert names == {".", "src", "docs", "empty", "empty/folder"}


async def test_a_flood_of_changes_is_a_few_builds(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    home = spec_of(root, ["."]).repositories[0].index_dir
    async with watched(root, settle_s=1) as client:  # longer than a busy machine keeps us from writing
        await found(client, "UserStore", "src/users.py")
        await in_state(client, "watching")
        before = read_pointer(home)
        until_s = time.monotonic() + 1.0
        number = 0
        while time.monotonic() < until_s:
            number += 1
            write(root, {f"src/flood{number % 300}.py": f"def flood{number}(): ...\n"})
            await anyio.sleep(0.002)
        await found(client, f"flood{number}", f"src/flood{number % 300}.py")
        after = read_pointer(home)

    assert before is not None
    assert after is not None
    assert after.generation - before.generation <= 3
