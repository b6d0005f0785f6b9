"""Where state is kept without a `toolpost.toml`."""

from pathlib import Path

import pytest

from toolpost.base.state_folder import make_folder
from toolpost.parts.workspace.settings import WORKSPACE
from toolpost.settings import load_config
from toolpost.settings.locations import data_folder, state_folder

HOME = Path.home()


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, HOME / ".local/share/toolpost"),
        ("linux", {"XDG_DATA_HOME": "/data"}, Path("/data/toolpost")),
        ("linux", {"XDG_DATA_HOME": "relative"}, HOME / ".local/share/toolpost"),
        ("darwin", {}, HOME / "Library/Application Support/toolpost"),
        ("win32", {"LOCALAPPDATA": "/local"}, Path("/local/toolpost")),
    ],
)
def test_data_directory_is_that_of_the_system(platform: str, environment: dict[str, str], expected: Path) -> None:
    assert data_folder(environment, platform) == expected


def test_two_projects_share_no_state_and_a_folder_that_is_there_is_used(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "same", tmp_path / "b" / "same"
    (other / ".toolpost").mkdir(parents=True)
    found = state_folder(one)

    assert found.parent == data_folder()
    assert found.name.startswith("same-")
    assert found != state_folder(tmp_path / "c" / "same")
    assert state_folder(other) == other / ".toolpost"
    assert state_folder(Path("/")).name.startswith("root-")


@pytest.mark.parametrize("file", [None, "toolpost.toml", "client.json"])
def test_store_is_beside_our_own_file_or_in_the_data_directory(file: str | None, tmp_path: Path) -> None:
    folder = tmp_path / "${HOME}"
    folder.mkdir()
    if file is not None:
        (folder / file).write_text('{"mcpServers": {}}' if file.endswith(".json") else "")
    config = load_config(folder / file if file else None, folder=folder)
    expected = folder / ".toolpost" if file == "toolpost.toml" else state_folder(folder)

    assert config.store_url == f"sqlite:{expected / 'toolpost.db'}"
    assert (folder / WORKSPACE.of(config).index_dir) == expected / "workspace"


def test_our_folder_is_ignored_by_git_and_no_other_is(tmp_path: Path) -> None:
    make_folder(tmp_path / ".toolpost" / "workspace" / "x")
    make_folder(tmp_path / "data")
    (tmp_path / ".toolpost" / ".gitignore").write_text("mine\n")
    make_folder(tmp_path / ".toolpost")

    assert (tmp_path / ".toolpost" / ".gitignore").read_text() == "mine\n"
    assert [path.name for path in tmp_path.rglob(".gitignore")] == [".gitignore"]
