"""References to plugins: a path names a file as well as a module does, and a mistake is explained."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolpost.authoring import Plugin
from toolpost.contracts.errors import PluginFailed
from toolpost.providers.references import resolve, split_reference

ONE = 'from toolpost import Plugin\n\nplugin = again = Plugin("one")\n'
TWO = ONE + 'other = Plugin("two")\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("reference", ["./ref_one.py", "ref_one.py", "ref_one.py:plugin", "{folder}/ref_one.py:again"])
def test_a_path_names_a_file(folder: Path, reference: str) -> None:
    (folder / "ref_one.py").write_text(ONE)

    assert isinstance(resolve(reference.format(folder=folder)), Plugin)


@pytest.mark.parametrize("path", ["src/ref_package/tools.py", "src/ref_package"])
def test_a_file_of_a_package_is_imported_as_its_module(folder: Path, path: str) -> None:
    package = folder / "src" / "ref_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(ONE)
    (package / "tools.py").write_text("from . import plugin\n")

    assert resolve(f"{path}:plugin").name == "one"
    assert split_reference(path)[0].startswith("ref_package")


def test_a_path_is_found_in_the_folder_of_the_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "ref_project.py").write_text(ONE)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir("/")

    assert resolve("./ref_project.py").name == "one"


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("./ref_two.py", "several plugins; name one: `./ref_two.py:plugin` or `./ref_two.py:other`"),
        ("ref_two:plugim", "`ref_two` has no `plugim`; did you mean `ref_two:plugin` or `ref_two:other`?"),
        ("./ref_two.py:nothing", "`./ref_two.py` has no `nothing`; did you mean `./ref_two.py:plugin`"),
        ("json:plugin", "`json` has no `plugin` and no plugin"),
        ("./absent.py", "there is no file ./absent.py"),
        ("ref_absent:plugin", "there is no module `ref_absent` beside"),
        ("./time.py", "another module is named `time`"),
    ],
)
def test_a_mistake_is_explained(folder: Path, monkeypatch: pytest.MonkeyPatch, reference: str, says: str) -> None:
    (folder / "ref_two.py").write_text(TWO)
    (folder / "time.py").write_text(ONE)
    monkeypatch.syspath_prepend(str(folder))

    with pytest.raises(PluginFailed) as raised:
        resolve(reference)
    assert says in raised.value.message


def test_what_a_plugin_imports_in_vain_is_named_as_it_is(folder: Path) -> None:
    (folder / "ref_vain.py").write_text("import ref_not_installed\n")

    with pytest.raises(ModuleNotFoundError, match="ref_not_installed"):
        resolve("./ref_vain.py")
