"""Builds: what is read, what is left out and why, what an update does, and what becomes of a damaged index."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts.workspace.repos import (
    FILES,
    USERS,
    build,
    first,
    git,
    make_repo,
    paths,
    search,
    workspace_client,
    write,
)
from toolpost.parts.workspace.generations import read_pointer
from toolpost.parts.workspace.spec import WorkspaceLimits, spec_of
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


def counts(built: dict[str, int]) -> dict[str, int]:
    return {name: built[name] for name in ("added", "changed", "removed", "renamed", "unchanged")}


async def test_an_update_reads_what_has_changed(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    async with workspace_client(root) as client:
        whole = await build(client)
        nothing = await build(client)
        write(root, {"src/users.py": USERS.replace("getUserById", "findUser"), "src/more.py": "def more(): ...\n"})
        (root / "docs/guide.md").rename(root / "docs/manual.md")
        (root / "src/app.js").unlink()
        update = await build(client)
        old = await paths(client, "getUserById")
        new = await first(client, "findUser")
        moved = await paths(client, "backing archive")

    assert counts(whole) == {"added": 3, "changed": 0, "removed": 0, "renamed": 0, "unchanged": 0}
    assert counts(nothing) == {"added": 0, "changed": 0, "removed": 0, "renamed": 0, "unchanged": 3}
    assert nothing["generation"] == whole["generation"], "nothing new is nothing written"
    assert counts(update) == {"added": 1, "changed": 1, "removed": 1, "renamed": 1, "unchanged": 0}
    assert old == []
    assert new["path"] == "src/users.py"
    assert moved == ["docs/manual.md"]


async def test_what_is_left_out_is_read_once(tmp_path: Path) -> None:
    root = make_repo(tmp_path, {**FILES, "picture.png": b"\x89PNG\0", "small.js": "var a=1;" * 5_000})
    async with workspace_client(root) as client:
        whole = await build(client)
        again = await build(client)
        (root / "picture.png").write_text("no picture any more\n")
        changed = await build(client)

    assert again["generation"] == whole["generation"], "nothing new is nothing written"
    assert again["skipped"] == whole["skipped"] == {"binary": 1, "minified": 1}
    assert (changed["added"], changed["skipped"]) == (1, {"minified": 1})


async def test_content_decides_and_not_times(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    users = root / "src/users.py"
    async with workspace_client(root) as client:
        await build(client)
        users.touch()
        touched = await build(client)
        before = users.stat()
        users.write_text(USERS.replace("UserStore", "StoreUser"))
        os.utime(users, ns=(before.st_atime_ns, before.st_mtime_ns))
        secret = await build(client)

    assert counts(touched)["changed"] == 0
    assert counts(secret)["changed"] == 1, "same size, same time of change, other content"


async def test_a_build_from_nothing_and_one_of_a_part(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    async with workspace_client(root) as client:
        await build(client)
        prose = await build(client, mode="prose")
        in_code = await paths(client, "UserStore")
        code = await build(client, mode="code")
        again = await build(client, incremental=False)
        status = data_of(await client.call_tool("workspace__index_status", {}))

    assert (prose["files"], prose["removed"], in_code) == (1, 2, [])
    assert (code["files"], code["added"], code["removed"]) == (2, 2, 1)
    assert (again["files"], again["added"], again["rebuilt"]) == (3, 3, "asked for")
    assert status["mode"] == "all"


BAD: dict[str, str | bytes] = {
    "good.py": "def good_one(): ...\n",
    "binary.py": b"def hidden():\0\1",
    "huge.txt": "x" * 300_000,
    "minified.js": "var a=1;" * 5_000,
    "latin.py": "def gr\xfcn(): ...\n".encode("latin-1"),
    "broken.py": "def broken(:\n  class (((\n",
    "empty.py": "",
    "no-newline.py": "def last_line(): ...",
    "surrogates.py": b"x = '\xed\xa0\x80'\n",
    "weird name é 'quoted' \n.py": "def odd_name(): ...\n",
    "nulls-later.txt": b"a" * 9_000 + b"\0",
    "deep/" + "d/" * 150 + "deep.py": "def deep_one(): ...\n",
    "ignored/secret.py": "def ignored_one(): ...\n",
    "kept/ignored.log": "ignored too\n",
    ".gitignore": "ignored/\n*.log\n",
}


@pytest.mark.parametrize("with_git", [True, False])
async def test_what_cannot_be_indexed_is_named(*, with_git: bool, tmp_path: Path) -> None:
    root = make_repo(tmp_path / "repo", BAD, with_git=with_git)
    (root / "link.py").symlink_to("good.py")
    os.mkfifo(root / "pipe.py")
    os.mkfifo(root / "tracked.py")
    with (root / "sparse.bin").open("wb") as file:
        file.truncate(1 << 30)
    make_repo(root / "inner", {"inner.py": "def inner(): ...\n"}) if with_git else None
    async with workspace_client(root, limits=WorkspaceLimits(file_bytes=200_000)) as client:
        built = await build(client)
        found = {name: await paths(client, name) for name in ("good_one", "last_line", "odd_name", "deep_one", "grün")}
        ignored = await paths(client, "ignored_one")
        huge = data_of(await client.call_tool("workspace__show_file", {"path": "huge.txt"}))

    reasons = {one["path"]: one["reason"] for one in built["skippedFiles"]}
    expected = {
        "binary.py": "binary",
        "huge.txt": "too large",
        "minified.js": "minified",
        "sparse.bin": "too large",
        "link.py": "symbolic link",
    }
    assert reasons.items() >= expected.items(), reasons
    assert set(reasons.values()) <= {*expected.values(), "special file", "nested repository"}
    assert all(found.values()), found
    assert ignored == []
    assert huge["totalLines"] == 1


async def test_files_without_permission_are_named(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read anything")
    root = make_repo(tmp_path)
    (root / "src/users.py").chmod(0)
    async with workspace_client(root) as client:
        built = await build(client)

    assert built["skippedFiles"] == [{"path": "src/users.py", "reason": "unreadable"}]


async def test_more_files_than_allowed_are_not_read(tmp_path: Path) -> None:
    root = make_repo(tmp_path, {f"f{n}.py": f"def f{n}(): ...\n" for n in range(20)})
    async with workspace_client(root, limits=WorkspaceLimits(files=5)) as client:
        built = await build(client)

    assert (built["files"], built["skipped"]) == (5, {"too many files": 1})


async def test_a_repository_in_the_middle_of_a_rebase_is_indexed(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    git(root, "checkout", "--quiet", "-b", "side")
    write(root, {"src/users.py": USERS + "\nSIDE = 1\n"})
    git(root, "commit", "--quiet", "-am", "side")
    git(root, "checkout", "--quiet", "main")
    write(root, {"src/users.py": USERS + "\nMAIN = 1\n"})
    git(root, "commit", "--quiet", "-am", "main")
    subprocess.run(
        ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@e", "rebase", "side"], capture_output=True
    )
    (root / ".git/index.lock").touch()
    async with workspace_client(root) as client:
        built = await build(client)
        status = data_of(await client.call_tool("workspace__index_status", {}))
        conflict = await first(client, "load_users")

    assert built["files"] == 3
    assert (status["git"]["branch"], status["git"]["dirty"]) == (None, True)
    assert conflict["path"] == "src/users.py"


async def test_a_folder_that_its_repository_ignores_is_walked(tmp_path: Path) -> None:
    make_repo(tmp_path, {".gitignore": "build/\n"})
    write(tmp_path, {"build/made.py": "def made(): ...\n"})
    async with workspace_client(tmp_path, "build") as client:
        built = await build(client)

    assert built["files"] == 1


async def test_without_git_a_gitignore_counts_for_its_folder(tmp_path: Path) -> None:
    files = {
        ".gitignore": "*.gen.py\n/top.py\n",
        "a.gen.py": "x = 1\n",
        "top.py": "x = 1\n",
        "sub/top.py": "x = 1\n",
        "sub/.gitignore": "!keep.gen.py\nlocal.py\n",
        "sub/keep.gen.py": "x = 1\n",
        "sub/local.py": "x = 1\n",
        "other/local.py": "x = 1\n",
        "node_modules/dep.js": "x\n",
    }
    root = make_repo(tmp_path, files, with_git=False)
    async with workspace_client(root) as client:
        await build(client)
        found = await search(client, "x = 1|\\*", regex=True, top=50)

    python = {hit["path"] for hit in found["hits"] if hit["path"].endswith(".py")}
    assert python == {"sub/top.py", "sub/keep.gen.py", "other/local.py"}


@pytest.mark.parametrize("damage", ["cut", "flipped", "lost", "pointer", "format", "files"])
async def test_a_damaged_index_is_said_and_made_anew(damage: str, tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    home = spec_of(root, ["."]).repositories[0].index_dir
    async with workspace_client(root) as client:
        await build(client)
    pointer = read_pointer(home)
    assert pointer is not None
    folder = home / pointer.folder_name
    target = next(folder.glob("*.term"))
    match damage:
        case "cut":
            target.write_bytes(target.read_bytes()[:-10])
        case "flipped":
            data = bytearray(target.read_bytes())
            data[len(data) // 2] ^= 1
            target.write_bytes(data)
        case "lost":
            target.unlink()
        case "pointer":
            (home / "current.json").write_text("{")
        case "format":
            text = (home / "current.json").read_text()
            (home / "current.json").write_text(text.replace('"format": 3', '"format": 1'))
        case "files":
            (folder / "files.db").write_bytes(b"SQLite format 3\0" + b"\0" * 100)
    async with workspace_client(root) as client:
        error = error_of(await client.call_tool("workspace__search", {"query": "UserStore"}))
        status = data_of(await client.call_tool("workspace__index_status", {}))
        check = data_of(await client.call_tool("workspace__check_status", {}))
        built = await build(client)
        hit = await first(client, "UserStore")

    assert (error["code"], error["details"]["damaged"]) == ("NO_INDEX", True)
    assert (status["exists"], status["damaged"]) == (False, True)
    assert [warning["code"] for warning in check["warnings"]] == ["INDEX_DAMAGED"]
    assert built["rebuilt"]
    assert hit["path"] == "src/users.py"


async def test_nobody_but_one_builds_at_a_time(tmp_path: Path) -> None:
    import anyio

    root = make_repo(tmp_path)
    made: list[int] = []

    async def one() -> None:
        async with workspace_client(root) as client:
            made.append((await build(client, incremental=False))["generation"])

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(one)
    async with workspace_client(root) as client:
        hit = await first(client, "UserStore")

    assert len(set(made)) == 3, "each waited for the one before"
    assert hit["path"] == "src/users.py"


async def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "repo")
    write(tmp_path, {"file": "no folder\n"})
    async with workspace_client(root, index_dir=str(tmp_path / "file" / "index")) as client:
        error = error_of(await client.call_tool("workspace__index_build", {}))

    assert error["code"] == "HANDLER_ERROR"
    assert "cannot be written" in error["message"]


async def test_a_full_disk_leaves_the_old_index(tmp_path: Path) -> None:
    """Where files cannot grow, as on a full disk."""
    if sys.platform != "linux":
        pytest.skip("needs prlimit")
    import resource

    root = make_repo(tmp_path)
    async with workspace_client(root) as client:
        await build(client)
        write(root, {f"more{n}.py": USERS.replace("User", f"Thing{n}") * 20 for n in range(20)})
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
        try:
            error = error_of(await client.call_tool("workspace__index_build", {}))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        hit = await first(client, "UserStore")
        again = await build(client)

    assert error["code"] == "HANDLER_ERROR", error
    assert hit["path"] == "src/users.py"
    assert again["files"] == 23
    home = spec_of(root, ["."]).repositories[0].index_dir
    assert len(list(home.glob("generation-*"))) == 1


async def test_files_that_vanish_while_they_are_read_are_no_matter(tmp_path: Path) -> None:
    import anyio

    root = make_repo(tmp_path, {f"f{n}.py": USERS for n in range(400)} | dict(FILES))
    async with workspace_client(root) as client:
        async with anyio.create_task_group() as tasks:

            async def remove() -> None:
                for number in reversed(range(400)):
                    (root / f"f{number}.py").unlink()
                    await anyio.sleep(0.003)

            tasks.start_soon(remove)
            built = await build(client)
            tasks.cancel_scope.cancel()
        hit = await first(client, "startApp")

    assert built["skipped"] == {}
    assert hit["path"] == "src/app.js"
