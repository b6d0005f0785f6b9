"""Repositories that have programs run, reach out or point elsewhere as soon as git looks at them.

Each plants a marker when anything of it is executed. All of them are the roots of one workspace, which is first watched without
a call and then asked for everything, through a real client. That each is as dangerous as it says is shown by git itself, which
falls for it in a copy.
"""

import json
import os
import shutil
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from mcp import Client

from tests.hostile.attacks import attack
from tests.parts.workspace.repos import FILES, git, make_repo, workspace_client, write
from tests.waiting import until
from tests.ways import IN_MEMORY, STATELESS, Way
from toolpost.app import open_app
from toolpost.parts.bus.commands.project import project_of
from toolpost.parts.workspace.generations import read_pointer
from toolpost.parts.workspace.settings import WorkspaceSettings
from toolpost.parts.workspace.spec import spec_of
from toolpost.testing import data_of, error_of

pytestmark = pytest.mark.wire

SECRET_BRANCH = "merger-with-acme"
NEVER_SAID = (SECRET_BRANCH, "outsideSecret")


@dataclass(kw_only=True)
class Hostile:
    """A hostile repository: how it is made, and the git command that shows what it does."""

    make: Callable[[Path, str], object]
    shown_by: tuple[str, ...] = ("status",)
    stdin: str = ""
    shows: bool = True
    """Whether git can be seen to fall for it by the marker."""


@dataclass(kw_only=True)
class Seen:
    """What became of all repositories."""

    watched: set[str] = field(default_factory=set)
    """Those that planted their marker while they were watched, with no call."""
    called: set[str] = field(default_factory=set)
    answers: dict[str, Any] = field(default_factory=dict)


def lose_objects(root: Path) -> None:
    """Lose the trees, as a partial clone has never had some, so that git goes and fetches them."""
    tree = git(root, "rev-parse", "HEAD^{tree}")
    (root / ".git/objects" / tree[:2] / tree[2:]).unlink()
    git(root, "config", "core.repositoryFormatVersion", "1")
    git(root, "config", "extensions.partialClone", "origin")
    git(root, "config", "remote.origin.promisor", "true")


def age(root: Path) -> None:
    """Make git doubt the times of every file, so that it compares contents."""
    for name in FILES:
        os.utime(root / name, (1, 1))


def clean_filter(root: Path, command: str) -> None:
    write(root, {".gitattributes": "* filter=evil\n"})
    git(root, "config", "filter.evil.clean", f"{command}; cat")
    age(root)


def process_filter(root: Path, command: str) -> None:
    write(root, {".gitattributes": "* filter=evil\n"})
    git(root, "config", "filter.evil.process", command)
    age(root)


def info_attributes(root: Path, command: str) -> None:
    (root / ".git/info/attributes").write_text("* filter=evil\n")
    git(root, "config", "filter.evil.clean", f"{command}; cat")
    age(root)


def submodule(root: Path, command: str) -> None:
    inner = make_repo(root / "lib")
    git(root, "-c", "advice.addEmbeddedRepo=false", "add", "lib")
    git(root, "commit", "--quiet", "--message", "with a library")
    clean_filter(inner, command)


def fsmonitor(root: Path, command: str) -> None:
    git(root, "config", "core.fsmonitor", f"{command}; false")


def hooks(root: Path, command: str) -> None:
    write(root, {"hooks/post-index-change": f"#!/bin/sh\n{command}\n"})
    (root / "hooks/post-index-change").chmod(0o755)
    git(root, "config", "core.hooksPath", "hooks")
    age(root)


def promisor(root: Path, command: str) -> None:
    lose_objects(root)
    git(root, "config", "protocol.ext.allow", "always")
    git(root, "config", "remote.origin.url", f"ext::{command}")


def ssh_command(root: Path, command: str) -> None:
    lose_objects(root)
    git(root, "config", "core.sshCommand", f"{command};")
    git(root, "config", "remote.origin.url", "ssh://nowhere.invalid/x")


def diff_programs(root: Path, command: str) -> None:
    (root / ".git/info/attributes").write_text("*.py diff=evil\n")
    git(root, "config", "diff.evil.textconv", f"{command}; cat")
    git(root, "config", "diff.external", command)
    git(root, "config", "core.pager", command)
    git(root, "config", "alias.st", f"!{command}")
    write(root, {"src/users.py": "changed = 1\n"})


def credential_helper(root: Path, command: str) -> None:
    git(root, "config", "credential.helper", f"!{command};")


def included(root: Path, command: str) -> None:
    write(root, {".gitattributes": "* filter=evil\n", "evil.cfg": f'[filter "evil"]\n\tclean = "{command}; cat"\n'})
    git(root, "config", "include.path", "../evil.cfg")
    git(root, "config", f"includeIf.gitdir:{root}/.path", "../evil.cfg")
    age(root)


def signature(root: Path, command: str) -> None:
    write(root, {"gpg": f"#!/bin/sh\n{command}\n"})
    (root / "gpg").chmod(0o755)
    git(root, "config", "gpg.program", str(root / "gpg"))
    git(root, "config", "log.showSignature", "true")
    said = git(root, "cat-file", "commit", "HEAD").split("\n\n", 1)
    signed = f"{said[0]}\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n{said[1]}\n"
    write(root, {"signed": signed})
    git(root, "update-ref", "HEAD", git(root, "hash-object", "-t", "commit", "-w", "signed"))
    (root / "signed").unlink()


def other_worktree(root: Path, command: str) -> None:
    git(root, "config", "core.worktree", str(root.parents[1] / "elsewhere"))
    info_attributes(root, command)


def other_repository(root: Path, _: str) -> None:
    shutil.rmtree(root / ".git")
    (root / ".git").write_text(f"gitdir: {root.parents[1]}/elsewhere/.git\n")


def linked_repository(root: Path, _: str) -> None:
    shutil.rmtree(root / ".git")
    (root / ".git").symlink_to(root.parents[1] / "elsewhere/.git")


def crafted_index(root: Path, _: str) -> None:
    """Let the index name a file outside; git lists it as any other."""
    path = root / ".git/index"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"docs/guide.md\0", b"../../elsew/x"[:13] + b"\0"))


HOSTILE = {
    "clean-filter": Hostile(make=clean_filter),
    "process-filter": Hostile(make=process_filter),
    "info-attributes": Hostile(make=info_attributes),
    "submodule": Hostile(make=submodule),
    "fsmonitor": Hostile(make=fsmonitor),
    "hooks": Hostile(make=hooks),
    "promisor": Hostile(make=promisor),
    "ssh-command": Hostile(make=ssh_command),
    "diff-programs": Hostile(make=diff_programs, shown_by=("diff",)),
    "credential-helper": Hostile(
        make=credential_helper, shown_by=("credential", "fill"), stdin="protocol=https\nhost=nowhere.invalid\n\n"
    ),
    "included": Hostile(make=included),
    "signature": Hostile(make=signature, shown_by=("log", "-1")),
    "other-worktree": Hostile(make=other_worktree, shows=False),
    "other-repository": Hostile(make=other_repository, shows=False),
    "linked-repository": Hostile(make=linked_repository, shows=False),
    "crafted-index": Hostile(make=crafted_index, shows=False),
}


def make_hostile(folder: Path, name: str) -> Path:
    """Make one, whose marker is named after it."""
    (folder / "markers").mkdir(parents=True, exist_ok=True)
    if not (folder / "elsewhere").exists():
        make_repo(folder / "elsewhere", {"secret.py": "def outsideSecret(): ...\n"})
        write(folder, {"elsew/x": "outsideSecret\n"})
        git(folder / "elsewhere", "branch", "--move", SECRET_BRANCH)
    root = make_repo(folder / "roots" / name)
    HOSTILE[name].make(root, f"touch {folder}/markers/{name}")
    return root


def markers(folder: Path) -> set[str]:
    return {path.name for path in (folder / "markers").iterdir()}


@asynccontextmanager
async def watched_client(project: Path) -> AsyncIterator[Client]:
    roots = [f"roots/{name}" for name in HOSTILE]
    config = msgspec.structs.replace(
        IN_MEMORY, project=str(project), parts={"workspace": WorkspaceSettings(watch=True, settle_s=0.1, roots=roots)}
    )
    async with open_app(config) as app, Way("memory", STATELESS).client_of(app) as client:
        yield client


async def attacked(folder: Path) -> Seen:
    seen = Seen()
    homes = [one.index_dir for one in spec_of(folder, [f"roots/{name}" for name in HOSTILE]).repositories]
    async with watched_client(folder) as client:
        await until(lambda: all(read_pointer(home) for home in homes), limit_s=120)
        # With no call: something changes, and is looked at again.
        write(folder / "roots/clean-filter", {"src/more.py": "def marmalade(): ...\n"})
        await anyio.sleep(1.0)  # what must not come would be here by now
        seen.watched = markers(folder)
        for tool, arguments in (
            ("check_status", {}),
            ("workspace_status", {}),
            ("index_status", {"repo": "submodule"}),
            ("search", {"query": "getUserById outsideSecret", "top": 100}),
            ("search", {"query": "getUser|outside", "regex": True, "top": 100}),
            ("show_file", {"path": "src/users.py", "repo": "process-filter"}),
            ("index_build", {"repo": "info-attributes", "incremental": False}),
        ):
            answer = await client.call_tool(f"workspace__{tool}", arguments)
            seen.answers[tool] = data_of(answer) if not answer.is_error else error_of(answer)
        seen.called = markers(folder)
    return seen


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("hostile")
    for name in HOSTILE:
        make_hostile(folder, name)
    # Making them has run some of their programs.
    shutil.rmtree(folder / "markers")
    (folder / "markers").mkdir()
    return anyio.run(attacked, folder)


def holds(seen: Seen, name: str) -> None:
    """Check that nothing of it was executed, and that it was indexed and is reported all the same."""
    status = next(one for one in seen.answers["workspace_status"]["repositories"] if one["repo"] == name)
    assert name not in seen.watched, "executed while it was watched"
    assert name not in seen.called, "executed by a call"
    assert status["exists"]
    assert any(hit["repo"] == name for hit in seen.answers["search"]["hits"])


@pytest.mark.parametrize("name", [name for name, one in HOSTILE.items() if one.shows])
def test_git_itself_falls_for_it(name: str, tmp_path: Path) -> None:
    root = make_hostile(tmp_path, name)
    (tmp_path / "markers" / name).unlink(missing_ok=True)
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", "-C", str(root), *HOSTILE[name].shown_by]
    subprocess.run(command, input=HOSTILE[name].stdin, text=True, capture_output=True, env=env, timeout=20)

    assert markers(tmp_path) == {name}


@attack(
    "repository", "sets a clean filter for every file", "no filter is run: files are compared by size, times and hash"
)
def test_a_clean_filter_is_not_run(seen: Seen) -> None:
    holds(seen, "clean-filter")


@attack("repository", "sets a process filter, which git keeps running", "no process is started for a repository")
def test_a_process_filter_is_not_run(seen: Seen) -> None:
    holds(seen, "process-filter")


@attack("repository", "sets a filter in `.git/info/attributes`, where no diff shows it", "attributes are not followed")
def test_a_filter_in_info_attributes_is_not_run(seen: Seen) -> None:
    holds(seen, "info-attributes")


@attack("repository", "hides a filter in a submodule", "of a submodule only HEAD is read, with the same care")
def test_a_filter_in_a_submodule_is_not_run(seen: Seen) -> None:
    holds(seen, "submodule")


@attack("repository", "names a program as `core.fsmonitor`", "it is not run")
def test_fsmonitor_is_not_run(seen: Seen) -> None:
    holds(seen, "fsmonitor")


@attack(
    "repository", "brings hooks and points `core.hooksPath` to them", "no hook is run, and the index is not written"
)
def test_hooks_are_not_run(seen: Seen) -> None:
    holds(seen, "hooks")


@attack("repository", "lacks objects and has a promisor remote `ext::…`", "missing objects are not fetched")
def test_a_promisor_remote_is_not_asked(seen: Seen) -> None:
    holds(seen, "promisor")


@attack("repository", "lacks objects and sets `core.sshCommand`", "no connection is opened and the command is not run")
def test_an_ssh_command_is_not_run(seen: Seen) -> None:
    holds(seen, "ssh-command")


@attack("repository", "sets external diffs, textconv, a pager and aliases", "none of them is run")
def test_diff_programs_are_not_run(seen: Seen) -> None:
    holds(seen, "diff-programs")


@attack("repository", "names a credential helper", "no credential is asked for")
def test_a_credential_helper_is_not_run(seen: Seen) -> None:
    holds(seen, "credential-helper")


@attack("repository", "includes settings from a file of its work tree", "includes are not followed")
def test_included_settings_do_not_count(seen: Seen) -> None:
    holds(seen, "included")


@attack("repository", "has a signed commit and names a program to verify it", "no signature is verified")
def test_a_program_for_signatures_is_not_run(seen: Seen) -> None:
    holds(seen, "signature")


@attack(
    "repository",
    "sets `core.worktree` to another folder",
    "the work tree is the folder that has `.git`; nothing of another one is listed",
)
def test_another_work_tree_is_not_entered(seen: Seen) -> None:
    holds(seen, "other-worktree")


@attack(
    "repository",
    "has a `.git` file that names another user's repository",
    "it is refused with a warning, because that repository does not name this folder",
)
def test_another_repository_is_not_read_through_a_file(seen: Seen) -> None:
    holds(seen, "other-repository")
    assert is_refused(seen, "other-repository")


@attack("repository", "has a `.git` that is a link to another user's repository", "it is refused with a warning")
def test_another_repository_is_not_read_through_a_link(seen: Seen) -> None:
    holds(seen, "linked-repository")
    assert is_refused(seen, "linked-repository")


@attack(
    "repository",
    "has an index that names files outside of the work tree",
    "it is refused with a warning; the folder is walked instead",
)
def test_an_index_that_leads_outside_is_refused(seen: Seen) -> None:
    holds(seen, "crafted-index")
    assert is_refused(seen, "crafted-index")


@attack(
    "repository",
    "has a `.git` file that claims to be a work tree of another user's project",
    "its agents do not join the bus of that project",
)
def test_another_projects_bus_is_not_joined(tmp_path: Path) -> None:
    other = make_repo(tmp_path / "other")
    git(other, "worktree", "add", "--quiet", str(tmp_path / "linked"))
    (tmp_path / "hostile").mkdir()
    (tmp_path / "hostile/.git").write_text(f"gitdir: {other}/.git/worktrees/linked\n")

    assert project_of(tmp_path / "linked") == other
    assert project_of(tmp_path / "hostile") == tmp_path / "hostile"


@pytest.mark.soak
@pytest.mark.anyio
@attack(
    "repository",
    "has an index of half a million files that are not there",
    "status takes its time in a thread, and the event loop waits less than 50 ms",
)
async def test_a_huge_index_does_not_hold_the_loop_up(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "repo")
    count = 500_000
    noted = struct.pack(">10I", *(0,) * 6, 0o100644, 0, 0, 0) + b"\1" * 20 + struct.pack(">H", 8)
    with (root / ".git/index").open("wb") as file:
        file.write(struct.pack(">4sII", b"DIRC", 2, count))
        file.writelines(noted + b"f%07d" % number + b"\0\0" for number in range(count))
        file.write(b"\0" * 20)
    waits: list[float] = []

    async def measure() -> None:
        while True:
            started = time.perf_counter()
            await anyio.sleep(0.001)
            waits.append(time.perf_counter() - started)

    async with workspace_client(root) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(measure)
        status = data_of(await client.call_tool("workspace__index_status", {}))
        tasks.cancel_scope.cancel()

    assert status["git"]["dirty"] is True
    assert sorted(waits)[-2] < 0.05


def test_nothing_of_another_repository_is_said(seen: Seen) -> None:
    said = json.dumps({tool: answer for tool, answer in seen.answers.items() if tool != "index_build"})

    assert all(secret not in said for secret in NEVER_SAID)


def is_refused(seen: Seen, name: str) -> bool:
    warnings = seen.answers["check_status"]["warnings"]
    return ("REPOSITORY_REFUSED", name) in {(one["code"], one.get("repo")) for one in warnings}
