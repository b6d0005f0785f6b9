"""What somebody might put into a repository, or ask for, to get at more than is allowed or to hold the gateway up."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from tests.hostile.attacks import attack
from tests.parts.workspace.repos import FILES, USERS, build, first, make_repo, paths, search, workspace_client, write
from tests.parts.workspace.test_ends import nobody_left
from toolpost.parts.workspace import build_process
from toolpost.parts.workspace.query import SearchRequest
from toolpost.parts.workspace.service import WorkspaceService
from toolpost.parts.workspace.spec import WorkspaceLimits, spec_of
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


@attack(
    "repository",
    "replaces a folder by a link that leads out of the root",
    "nothing outside is read or shown",
)
async def test_a_folder_that_became_a_link_out_of_the_root_is_not_entered(tmp_path: Path) -> None:
    """git goes on listing the files that it knows, as if they were there."""
    root = make_repo(tmp_path / "shop", {**FILES, "inner/deep/notes.py": "def harmless(): ...\n"})
    write(tmp_path, {"outside/deep/notes.py": "def outsideSecret(): ...\n"})
    async with workspace_client(root) as client:
        await build(client)
        (root / "inner").rename(tmp_path / "away")
        (root / "inner").symlink_to(tmp_path / "outside")
        before = await search(client, "outsideSecret harmless")
        built = await build(client)
        after = await search(client, "outsideSecret")
        pattern = await search(client, "Secret", regex=True)
        error = error_of(await client.call_tool("workspace__show_file", {"path": "inner/deep/notes.py"}))

    assert before["hits"] == after["hits"] == pattern["hits"] == []
    assert after["stale"] == [], "nothing tells what is in it"
    assert {"path": "inner/deep/notes.py", "reason": "symbolic link"} in built["skippedFiles"]
    assert error["code"] == "FORBIDDEN"


@attack(
    "repository",
    "swaps a folder for a link in the moment that it is read",
    "the swap is noticed, and nothing outside is shown",
)
async def test_a_folder_swapped_for_a_link_in_the_moment_it_is_read_is_noticed(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "shop", {**FILES, "swap/a.txt": "harmless\n"})
    write(tmp_path, {"outside/a.txt": "secret\n"})
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (root / "swap").rename(root / "kept")
            (root / "swap").symlink_to(tmp_path / "outside")
            (root / "swap").unlink()
            (root / "kept").rename(root / "swap")
            time.sleep(0.002)

    swapping = threading.Thread(target=swap)
    swapping.start()
    answers = []
    try:
        async with workspace_client(root) as client:
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                answers.append(await client.call_tool("workspace__show_file", {"path": "swap/a.txt"}))
    finally:
        stop.set()
        swapping.join()

    assert any(not answer.is_error for answer in answers)
    assert all("secret" not in json.dumps(answer.structured_content) for answer in answers)


@attack(
    "repository",
    "puts a named pipe where a file was",
    "it is not opened, and nothing hangs",
)
async def test_to_look_at_a_pipe_is_not_felt_at_its_other_end(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    os.mkfifo(root / "pipe.py")
    writer = threading.Thread(target=lambda: os.close(os.open(root / "pipe.py", os.O_WRONLY)), daemon=True)
    writer.start()
    async with workspace_client(root) as client:
        built = await build(client)
        error = error_of(await client.call_tool("workspace__show_file", {"path": "pipe.py"}))
        is_waiting = writer.is_alive()
    os.close(os.open(root / "pipe.py", os.O_RDONLY))
    writer.join(5)

    assert is_waiting, "whoever writes to it still waits for a reader"
    assert built["files"] == 3
    assert error["code"] == "FORBIDDEN"


async def test_files_that_lie_about_their_encoding_are_read_all_the_same(tmp_path: Path) -> None:
    names = ("undefined", "idna", "rot13", "hex", "unicode_escape", "utf-7", "nonsense", "utf-16")
    body = b"def lying(): return '\xff\\N{x}'\n"
    root = make_repo(tmp_path, {f"{name}.py": f"# -*- coding: {name} -*-\n".encode() + body for name in names})
    async with workspace_client(root) as client:
        built = await build(client)
        shown = [data_of(await client.call_tool("workspace__show_file", {"path": f"{name}.py"})) for name in names]
        found = await paths(client, "lying", top=20)

    assert (built["files"], built["skipped"]) == (len(names), {})
    assert all(one["lines"][0]["text"].startswith("# -*- coding") for one in shown)
    assert sorted(found) == sorted(f"{name}.py" for name in names)


async def test_a_file_that_no_parser_gets_over_is_named_and_the_others_are_indexed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_process, "STUCK_S", 4.0)
    root = make_repo(
        tmp_path, {**FILES, "endless.rs": ('"' * 1_000 + "\n") * 1_000, "row.py": ("(" * 999 + "\n") * 100}
    )
    async with workspace_client(root) as client:
        built = await build(client)
        again = await build(client)
        write(root, {"src/users.py": ('("' * 500 + "\n") * 100})
        with anyio.fail_after(30):
            stale = await search(client, "getUserById")
            by_pattern = await search(client, "getUserById", regex=True)
        write(root, {"endless.rs": "fn not_any_more() {}\n"})
        mended = await build(client, force=True)

    assert built["skippedFiles"] == [{"path": "endless.rs", "reason": "too complex"}]
    assert built["files"] == 4, "a row of tokens is indexed, in pieces"
    assert (again["generation"], again["skipped"]) == (built["generation"], {"too complex": 1})
    assert {hit["path"] for found in (stale, by_pattern) for hit in found["hits"]} == {"src/app.js"}
    assert "endless.rs" not in {one["path"] for one in mended["skippedFiles"]}
    await nobody_left()


@attack(
    "caller",
    "searches with globs made of stars",
    "they are matched at once, or refused",
)
async def test_globs_of_stars_take_no_time(tmp_path: Path) -> None:
    root = make_repo(tmp_path, {**FILES, "a" * 100 + ".py": "def " + "e" * 100 + "(): ...\n"})
    async with workspace_client(root) as client:
        await build(client)
        for name, glob in (("path", "*a" * 60 + "!"), ("path", "**" * 60 + "!"), ("symbol", "*e" * 60 + "!")):
            for regex in (True, False):
                started = time.monotonic()
                answer = await client.call_tool("workspace__search", {"query": "def", "regex": regex, name: glob})
                took_s = time.monotonic() - started

                assert took_s < 30
                if answer.is_error:
                    assert error_of(answer)["code"] == "INVALID_PARAMS"
                else:
                    assert data_of(answer)["hits"] == []


async def test_sixty_four_may_search_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_repo(tmp_path, {f"f{n}.py": USERS * 20 for n in range(150)})
    codes: list[str] = []
    are_sent = threading.Event()
    unpatched = WorkspaceService.search_blocking

    def search_late(*arguments: Any) -> Any:
        are_sent.wait(60)
        return unpatched(*arguments)

    monkeypatch.setattr(WorkspaceService, "search_blocking", search_late)
    async with workspace_client(root) as client:
        await build(client)

        async def ask() -> None:
            answer = await client.call_tool("workspace__search", {"query": "([a-z]+ )+Q", "regex": True})
            codes.append(error_of(answer)["code"] if answer.is_error else "ok")
            # Those over the limit are refused at once, the others wait until all were.
            if len(codes) == 16:
                are_sent.set()

        async with anyio.create_task_group() as tasks:
            for _ in range(80):
                tasks.start_soon(ask)
        after = await client.call_tool("workspace__search", {"query": "UserStore"})

    assert codes.count("ok") == 64
    assert codes.count("QUEUE_OVERLOADED") == 80 - codes.count("ok")
    assert not after.is_error


async def test_a_search_that_is_called_off_stops(tmp_path: Path) -> None:
    root = make_repo(tmp_path, {f"f{n}.py": USERS for n in range(50)})
    async with workspace_client(root) as client:
        await build(client)
    service, stop = WorkspaceService(spec_of(root, ["."])), threading.Event()
    stop.set()

    by_pattern = service.search_blocking(SearchRequest(query="User", regex=True, top=100), None, stop)
    by_words = service.search_blocking(SearchRequest(query="user", top=100), None, stop)

    assert (by_pattern["hits"], by_pattern["truncated"]) == ([], True)
    assert len(by_words["hits"]) == 1


@attack(
    "repository",
    "holds a huge file",
    "it is shown in parts, in little memory",
)
async def test_a_huge_file_is_shown_in_little_memory(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    with (root / "huge.log").open("wb") as file:
        file.writelines(b"%9d" % number + b"." * 990 + b"\n" for number in range(1, 70_001))
    with (root / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    (root / "wide.txt").write_text("w" * 70_000_000)
    async with workspace_client(root) as client:
        before = psutil.Process().memory_info().rss
        end = data_of(await client.call_tool("workspace__show_file", {"path": "huge.log", "start": 67_000}))
        wide = data_of(await client.call_tool("workspace__show_file", {"path": "wide.txt"}))
        sparse = error_of(await client.call_tool("workspace__show_file", {"path": "sparse"}))
        grown = psutil.Process().memory_info().rss - before

    assert (end["lines"][0]["text"].strip(" ."), end["totalLines"], end["truncated"]) == ("67000", None, True)
    assert (len(wide["lines"][0]["text"]), wide["truncated"]) == (4_001, True)
    assert sparse["code"] == "INVALID_REQUEST"
    assert grown < 24 * 1024 * 1024


async def test_a_pattern_over_many_files_holds_one_at_a_time(tmp_path: Path) -> None:
    root = make_repo(tmp_path, {f"f{n}.txt": ("line of text" * 9 + "\n") * 10_000 for n in range(15)})
    async with workspace_client(root) as client:
        await build(client)
        await search(client, "nothing like it", regex=True, path="f1.txt")
        before = psutil.Process().memory_info().rss
        found = await search(client, "nothing like it", regex=True)
        grown = psutil.Process().memory_info().rss - before

    assert found["hits"] == []
    assert grown < 12 * 1024 * 1024


async def test_a_repository_within_another_is_not_found_twice(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "all", {f"shop/{name}": text for name, text in FILES.items()})
    async with workspace_client(root, ".", "shop") as client:
        await build(client)
        found = await search(client, "getUserById", top=10)
        by_pattern = await search(client, "getUserById", top=10, regex=True)

    for hits in (found["hits"], by_pattern["hits"]):
        places = [(root if hit["repo"] == "all" else root / "shop", hit["path"], hit["startLine"]) for hit in hits]
        assert len({(folder / path, line) for folder, path, line in places}) == len(places) > 1


async def test_a_lock_that_is_none_any_more_keeps_nobody_from_building(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    home = spec_of(root, ["."]).repositories[0].index_dir
    async with workspace_client(root) as client:
        await build(client)
        (home / "build.lock").write_bytes(b"no database" * 100)
        write(root, {"src/more.py": "def marmalade(): ...\n"})
        await build(client)
        hit = await first(client, "marmalade")

    assert hit["path"] == "src/more.py"


async def test_a_line_as_long_as_a_file_is_searched_and_shown_in_part(tmp_path: Path) -> None:
    root = make_repo(tmp_path, {"wide.txt": "someWord other " * 120_000 + "\n" + "short\n" * 500})
    async with workspace_client(root, limits=WorkspaceLimits(file_bytes=4_000_000)) as client:
        built = await build(client)
        started = time.monotonic()
        hit = await first(client, "someWord", context=1)
        took_s = time.monotonic() - started

    assert built["files"] == 1
    assert len(hit["headline"]) <= 501
    assert took_s < 30
    assert await _is_empty(tmp_path)


async def _is_empty(root: Path) -> bool:
    async with workspace_client(root) as client:
        return await paths(client, "nowhereToBeFound") == []
