"""Repositories read without git, compared with what git itself says; and files that lie about their sizes."""

import os
import stat
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.attacks import assert_linear, slowness, thread_cpu_s
from tests.parts.workspace.repos import FILES, USERS, git, make_repo, write
from toolpost.parts.workspace.git.changes import open_work_tree
from toolpost.parts.workspace.git.config import parse_config, read_user_config
from toolpost.parts.workspace.git.files import Unreadable
from toolpost.parts.workspace.git.index import read_index
from toolpost.parts.workspace.git.repository import RepositoryRefused, find_repository, read_head
from toolpost.parts.workspace.scan import scan
from toolpost.parts.workspace.spec import Repository, WorkspaceLimits, spec_of

pytestmark = pytest.mark.wire

MANY = {**FILES, **{f"src/deep/er/n{n}.py": f"x = {n}\n" for n in range(20)}, "src-a/x.py": "1\n", "src.b": "2\n"}


def repo_at(root: Path) -> Repository:
    return spec_of(root, ["."]).repositories[0]


def state_at(root: Path) -> Any:
    return scan(repo_at(root), WorkspaceLimits()).git


def is_dirty(root: Path) -> bool:
    return bool(git(root, "status", "--porcelain", "--", ".", ":(exclude).toolpost"))


def settle(root: Path) -> None:
    """Let the index be younger than every file, as it is a moment later."""
    index = Path(git(root, "rev-parse", "--absolute-git-dir")) / "index"
    later = time.time() + 5
    os.utime(index, (later, later))


def as_git_says(root: Path) -> None:
    """Compare head, branch, dirtiness and the list of files with git's own."""
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate").split("\0")
    found = scan(repo_at(root), WorkspaceLimits())
    assert found.git is not None
    branch = git(root, "branch", "--show-current") or None
    assert (found.git["head"], found.git["branch"]) == (git(root, "rev-parse", "HEAD"), branch)
    assert found.git["dirty"] is is_dirty(root), found.git
    assert set(found.files) == {path for path in listed if path and (root / path).is_file()}


def version_4(root: Path) -> None:
    git(root, "update-index", "--index-version", "4")


def flags(root: Path) -> None:
    git(root, "update-index", "--skip-worktree", "src/app.js")
    git(root, "update-index", "--assume-unchanged", "docs/guide.md")
    (root / "src/app.js").unlink()
    (root / "docs/guide.md").write_text("changed, and git is told not to look\n")


def split(root: Path) -> None:
    git(root, "update-index", "--split-index")
    write(root, {"src/users.py": USERS + "# more\n", "new.py": "y = 1\n", "src-a/0.py": "first\n"})
    git(root, "rm", "--quiet", "--cached", "src.b")
    (root / "src.b").unlink()
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "second")


def sparse(root: Path) -> None:
    git(root, "sparse-checkout", "init", "--cone", "--sparse-index")
    git(root, "sparse-checkout", "set", "docs")


def packed(root: Path) -> None:
    """Have commits that are deltas of others."""
    for number in range(8):
        git(root, "commit", "--quiet", "--allow-empty", "--message", "the same long message\n\n" * 60 + str(number))
    git(root, "repack", "-q", "-a", "-d", "-f", "--depth=10", "--window=20")
    git(root, "pack-refs", "--all", "--prune")
    git(root, "prune")


def detached(root: Path) -> None:
    git(root, "checkout", "--quiet", "--detach")


def conflict(root: Path) -> None:
    git(root, "checkout", "--quiet", "-b", "other")
    write(root, {"src.b": "theirs\n"})
    git(root, "commit", "--quiet", "--all", "--message", "theirs")
    git(root, "checkout", "--quiet", "main")
    write(root, {"src.b": "ours\n"})
    git(root, "commit", "--quiet", "--all", "--message", "ours")
    with pytest.raises(AssertionError):
        git(root, "merge", "other")


def ignoring(root: Path) -> None:
    write(
        root,
        {
            ".gitignore": "*.log\n/made/\n!keep.log\n[\n",
            "a.log": "1\n",
            "keep.log": "1\n",
            "made/x.py": "1\n",
            "src/made/y.py": "1\n",
            "src/.gitignore": "!a.log\ny.py\n",
            "src/a.log": "1\n",
            "not/here.py": "1\n",
            "tracked/z.log": "1\n",
        },
    )
    (root / ".git/info/exclude").write_text("not/\n")
    git(root, "add", "--force", "tracked/z.log")


def with_byte_order_marks(root: Path) -> None:
    """Have files as some editors of Windows write them: git skips the mark."""
    write(root, {".gitignore": "\ufeff*.log\n", "a.log": "1\n"})
    config = root / ".git/config"
    config.write_text("\ufeff" + config.read_text().replace("filemode = true", "filemode = false"), "utf-8")
    (root / "src.b").chmod(0o755)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "second")


KINDS: list[Callable[[Path], None]] = [
    *(version_4, flags, split, sparse, packed, detached, conflict, ignoring, with_byte_order_marks),
]


@pytest.mark.parametrize("change", KINDS, ids=lambda change: change.__name__)
def test_every_kind_of_repository_is_read_as_git_reads_it(change: Callable[[Path], None], tmp_path: Path) -> None:
    root = make_repo(tmp_path, MANY)
    change(root)
    settle(root)

    as_git_says(root)


def stage(root: Path, text: str) -> None:
    write(root, {"src.b": text})
    git(root, "add", "src.b")


def stage_and_take_back(root: Path) -> None:
    stage(root, "33\n")
    stage(root, "2\n")


def mean_to_add(root: Path) -> None:
    write(root, {"n": "1\n"})
    git(root, "add", "--intent-to-add", "n")


def become_a_link(root: Path) -> None:
    (root / "src.b").unlink()
    (root / "src.b").symlink_to("docs")


def link_out(root: Path) -> None:
    (root / "docs").rename(root.parent / "away")
    (root / "docs").symlink_to(root.parent / "away")


CHANGES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "nothing": (lambda _: None, False),
    "touched": (lambda root: os.utime(root / "src.b", (1, 1)), False),
    "changed": (lambda root: (root / "src.b").write_text("3\n"), True),
    "longer": (lambda root: (root / "src.b").write_text("33\n"), True),
    "deleted": (lambda root: (root / "src.b").unlink(), True),
    "staged": (lambda root: stage(root, "33\n"), True),
    "staged and taken back": (stage_and_take_back, False),
    "staged as deleted": (lambda root: git(root, "rm", "--quiet", "src.b"), True),
    "meant to be added": (mean_to_add, True),
    "untracked": (lambda root: write(root, {"new.py": "1\n"}), True),
    "executable": (lambda root: (root / "src.b").chmod(0o755), True),
    "a link now": (become_a_link, True),
    "a folder that is a link": (link_out, True),
    "written with the index": (lambda root: os.utime(root / ".git/index", (1, 1)), False),
}


@pytest.mark.parametrize(
    ("object_format", "name"), [*(("sha1", name) for name in CHANGES), ("sha256", "nothing"), ("sha256", "staged")]
)
def test_what_differs_is_noticed(object_format: str, name: str, tmp_path: Path) -> None:
    """git may be late here: it compares times by the second."""
    change, differs = CHANGES[name]
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main", f"--object-format={object_format}")
    write(root, MANY)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "first")
    settle(root)
    change(root)

    assert state_at(root) == {"head": git(root, "rev-parse", "HEAD"), "branch": "main", "dirty": differs}


def test_a_repository_without_commits(tmp_path: Path) -> None:
    root = tmp_path
    git(root, "init", "--quiet", "--initial-branch=trunk")

    assert state_at(root) == {"head": None, "branch": "trunk", "dirty": False}
    write(root, {"a.py": "1\n"})
    assert state_at(root) == {"head": None, "branch": "trunk", "dirty": True}


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_branch_may_have_any_bytes_as_its_name(is_packed: bool, tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    commit = git(root, "rev-parse", "HEAD")
    (root / ".git/HEAD").write_bytes(b"ref: refs/heads/caf\xe9\n")
    if is_packed:
        (root / ".git/packed-refs").write_bytes(commit.encode() + b" refs/heads/caf\xe9\n")
    repository = find_repository(root)
    assert repository is not None

    head = read_head(repository)

    assert (head.commit, head.branch, head.note) == (commit if is_packed else None, "caf\ufffd", None)


def test_a_user_without_a_home_directory_has_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_repo(tmp_path)
    expected = state_at(root)
    for name in ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user that the system does not know
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    assert read_user_config() == {}
    assert state_at(root) == expected


def test_what_only_a_filter_could_tell_is_said_to_be_unknown(tmp_path: Path) -> None:
    """A touched file whose repository converts contents: to know, git would run its filter."""
    root = make_repo(tmp_path, {**FILES, ".gitattributes": "*.txt filter=shout\n"})
    git(root, "config", "filter.shout.clean", "tr a-z A-Z")
    write(root, {"a.txt": "quiet\n"})
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "second")
    settle(root)
    before = state_at(root)
    os.utime(root / "a.txt", (1, 1))
    after = state_at(root)

    assert (before["dirty"], "note" in before) == (False, False)
    assert after["dirty"] is True
    assert after["note"] == "Whether 1 files differ is not known, such as a.txt: filters are not run."


def test_work_trees_and_submodules_are_followed_where_they_point_back(tmp_path: Path) -> None:
    main = make_repo(tmp_path / "main", MANY)
    git(main, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    library = make_repo(tmp_path / "library")
    git(main, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib")
    git(main, "commit", "--quiet", "--message", "with a library")
    for root in (main, tmp_path / "side", main / "lib"):
        settle(root)
        as_git_says(root)
    write(main / "lib", {"more.py": "1\n"})
    git(main / "lib", "add", "--all")
    git(main / "lib", "commit", "--quiet", "--message", "more")

    assert state_at(main)["dirty"] is True, "the submodule has another commit"


def test_a_folder_below_the_top_is_read_with_the_rules_above_it(tmp_path: Path) -> None:
    root = make_repo(tmp_path, {**MANY, ".gitignore": "*.tmp\nmade/\n"})
    write(root, {"src/a.tmp": "1\n", "made/inner/a.py": "1\n", "other.txt": "1\n"})
    git(root, "commit", "--quiet", "--all", "--allow-empty", "--message", "second")
    settle(root)

    as_git_says(root / "src")
    assert open_work_tree(root / "made/inner") is None, "the repository ignores it, and says nothing of it"


def test_another_users_repository_is_refused_unless_listed_as_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_repo(tmp_path / "repo")
    config = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.delenv("SUDO_UID", raising=False)
    owner = root.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    with pytest.raises(RepositoryRefused, match=r"safe\.directory"):
        find_repository(root)
    found = scan(repo_at(root), WorkspaceLimits())
    assert (found.git, set(found.files)) == (None, set(FILES)), "it is a folder like any other"
    for listed in (str(root), "*", f"{tmp_path}/*"):
        config.write_text(f'[safe]\n\tdirectory = "{listed}"\n')
        assert find_repository(root) is not None
    config.write_text(f"[safe]\ndirectory = {root}\ndirectory =\n")
    with pytest.raises(RepositoryRefused):
        find_repository(root)


def test_root_trusts_the_user_behind_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_repo(tmp_path / "repo")
    real = os.lstat

    def owned_by_another(path: Any) -> os.stat_result:
        found = list(real(path))
        found[stat.ST_UID] = 12345
        return os.stat_result(found)

    monkeypatch.setattr(os, "lstat", owned_by_another)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("SUDO_UID", "12345")
    assert find_repository(root) is not None
    monkeypatch.setenv("SUDO_UID", "777")
    with pytest.raises(RepositoryRefused):
        find_repository(root)


def test_what_leads_to_another_repository_is_refused(tmp_path: Path) -> None:
    secret = make_repo(tmp_path / "secret")
    git(secret, "branch", "--move", "merger-with-acme")
    made: dict[str, Path] = {name: tmp_path / name for name in ("file", "link", "common", "head", "ref")}
    for name, root in made.items():
        make_repo(root, with_git=name not in ("file", "link"))
    (made["file"] / ".git").write_text(f"gitdir: {secret}/.git\n")
    (made["link"] / ".git").symlink_to(secret / ".git")
    (made["common"] / ".git/commondir").write_text(f"{secret}/.git\n")
    (made["head"] / ".git/HEAD").unlink()
    (made["head"] / ".git/HEAD").symlink_to(secret / ".git/HEAD")
    (made["ref"] / ".git/HEAD").write_text("ref: refs/heads/../../../../secret/.git/refs/heads/merger-with-acme\n")
    head = git(secret, "rev-parse", "HEAD")

    for name in ("file", "link", "common"):
        with pytest.raises(RepositoryRefused):
            find_repository(made[name])
    for root in made.values():
        found = scan(repo_at(root), WorkspaceLimits())
        assert "merger" not in str(found.git)
        assert head not in str(found.git) or root == made["common"]
        assert set(found.files) == set(FILES)


def entry(path: bytes, *, mode: int = 0o100644) -> bytes:
    raw = struct.pack(">10I", 0, 0, 0, 0, 0, 0, mode, 0, 0, 0) + b"\1" * 20 + struct.pack(">H", len(path)) + path
    return raw + b"\0" * (8 - len(raw) % 8)


def index_of(*entries: bytes, version: int = 2, count: int | None = None, tail: bytes = b"") -> bytes:
    head = struct.pack(">4sII", b"DIRC", version, len(entries) if count is None else count)
    return head + b"".join(entries) + tail + b"\0" * 20


V4_BOMB = index_of(
    *(struct.pack(">10I", *[0] * 10) + b"\1" * 20 + b"\0\0\0" + b"a" * 4_000 + b"\0" for _ in range(3)),
    version=4,
)
LYING = {
    "no index": b"nonsense",
    "empty": b"",
    "four billion files": index_of(count=0xFFFFFFFF),
    "more than there is room for": index_of(entry(b"a"), count=50),
    "goes up": index_of(entry(b"../../etc/passwd")),
    "goes up later": index_of(entry(b"a/../../b")),
    "absolute": index_of(entry(b"/etc/passwd")),
    "git's own": index_of(entry(b"a/.GIT/config")),
    "without end": index_of(entry(b"a"))[:75],
    "deep": index_of(entry(b"a/" * 1_000 + b"b")),
    "long": index_of(entry(b"a" * 5_000)),
    "longer than long": V4_BOMB,
    "drops what it has not": index_of(struct.pack(">10I", *[0] * 10) + b"\1" * 20 + b"\0\0\x90a\0", version=4),
    "unknown and needed": index_of(entry(b"a"), tail=b"evil" + struct.pack(">I", 0)),
    "builds on nothing": index_of(tail=b"link" + struct.pack(">I", 20) + b"\2" * 20),
    "an extension without end": index_of(tail=b"link" + struct.pack(">I", 0xFFFFFFFF) + b"\2" * 40),
}


@pytest.mark.parametrize("data", LYING.values(), ids=LYING.keys())
def test_an_index_that_lies_is_refused(data: bytes, tmp_path: Path) -> None:
    root = make_repo(tmp_path / "repo")
    write(tmp_path, {"etc/passwd": "outside\n"})
    (root / ".git/index").write_bytes(data)

    with pytest.raises(RepositoryRefused):
        open_work_tree(root)
    found = scan(repo_at(root), WorkspaceLimits())
    assert (found.git, set(found.files)) == (None, set(FILES))


def test_bitmaps_of_a_split_index_are_bounded(tmp_path: Path) -> None:
    """Runs of 2^32 words of ones, over a shared index of one file."""
    root = make_repo(tmp_path / "repo")
    run = struct.pack(">IIQQI", 0xFFFFFFFF, 2, (1 | 0xFFFFFFFF << 1), (1 | 0xFFFFFFFF << 1), 0)
    (root / ".git" / ("sharedindex." + "02" * 20)).write_bytes(index_of(entry(b"a")))
    link = b"\2" * 20 + run + struct.pack(">III", 0, 0, 0)
    (root / ".git/index").write_bytes(index_of(tail=b"link" + struct.pack(">I", len(link)) + link))

    repository = find_repository(root)
    assert repository is not None
    assert thread_cpu_s(lambda: read_index(repository)) < 1.0 * slowness()
    assert read_index(repository).entries == {}


def test_files_without_end_are_not_read_to_it(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "repo")
    git(root, "pack-refs", "--all", "--prune")
    repository = find_repository(root)
    assert repository is not None
    for name in ("index", "HEAD", "packed-refs"):
        kept = (root / ".git" / name).read_bytes()
        os.truncate(root / ".git" / name, 0)
        os.truncate(root / ".git" / name, 1 << 40)
        if name == "index":
            with pytest.raises(Unreadable):
                read_index(repository)
        else:
            assert read_head(repository).note is not None
        (root / ".git" / name).write_bytes(kept)


def test_pipes_in_place_of_files_hold_nobody_up(tmp_path: Path) -> None:
    for name in (".git/HEAD", ".git/index", ".git/config", ".git/refs/heads/main", ".gitignore", ".git/info/exclude"):
        root = make_repo(tmp_path / name.replace("/", "-"))
        (root / name).unlink(missing_ok=True)
        os.mkfifo(root / name)

        assert set(scan(repo_at(root), WorkspaceLimits()).files) == set(FILES)


def test_objects_that_unpack_to_anything_are_read_to_their_first_line(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    head = git(root, "rev-parse", "HEAD")
    path = root / ".git/objects" / head[:2] / head[2:]
    path.unlink()
    path.write_bytes(zlib.compress(b"commit 1\0" + b"x" * 100_000_000, 9))
    settle(root)

    assert thread_cpu_s(lambda: state_at(root)) < 0.5 * slowness()
    assert "note" in state_at(root)


def test_an_index_is_read_in_time_linear_in_its_size(tmp_path: Path) -> None:
    root = make_repo(tmp_path)
    repository = find_repository(root)
    assert repository is not None

    def cost_s(count: int) -> float:
        (root / ".git/index").write_bytes(index_of(*(entry(b"f%07d/name.py" % n) for n in range(count))))
        return thread_cpu_s(lambda: read_index(repository).tree_id(20))

    assert_linear(cost_s, small=2_000)


def test_patterns_of_stars_take_no_time(tmp_path: Path) -> None:
    """git itself would take longer than anybody lives, and so would Python's own engine."""
    root = make_repo(tmp_path)
    write(root, {".gitignore": f"{'*a' * 60}b\n", **{"a" * 220 + str(n): "1\n" for n in range(9)}})

    assert thread_cpu_s(lambda: scan(repo_at(root), WorkspaceLimits())) < 5.0 * slowness()


def test_settings_are_read_as_git_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        '[core]\n\tfileMode = false # no\n\tbare\n[safe]\ndirectory = "/a b;c"\n\tdirectory=/two\\\n/more\n'
        '[remote "Or\\"igin"]\nurl = "x\\ty"\n[Extensions] objectFormat=sha256\n'
    )
    keys = {"core.filemode": "core.filemode", "safe.directory": "safe.directory", "extensions.objectformat": ""}
    ours = parse_config(path.read_text())
    for key in keys:
        theirs = git(tmp_path, "config", "--file", str(path), "--get-all", key).split("\n")
        assert ours[key] == theirs
    assert ours["core.bare"] == [""]
