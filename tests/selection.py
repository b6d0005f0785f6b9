"""The tests of a module: `scripts/test --of src/toolpost/endpoints/calls.py`.

These are the file at the mirrored path and every test file that imports the module, or one of its names from a package above it.
Of a package they are the tests in the mirrored folder and every test file that imports something from it.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
SOURCES = TESTS.parent / "src"


def find_tests(path: Path) -> list[Path]:
    """Return the test files of a module or package below `src`; raises `ValueError` if it is none."""
    source = path.resolve()
    source = source.parent if source.name == "__init__.py" else source
    if not source.exists() or not source.is_relative_to(SOURCES / "toolpost"):
        raise ValueError(f"{path} is no module below src/toolpost")
    module = ".".join(source.relative_to(SOURCES).with_suffix("").parts)
    mirrored = TESTS / source.relative_to(SOURCES / "toolpost")
    found = set(mirrored.rglob("test_*.py")) | {mirrored.with_name(f"test_{source.stem}.py")}
    names = set() if source.is_dir() else _defined_in(source)
    words = {source.stem, *names}
    for test in TESTS.rglob("test_*.py"):
        text = test.read_text()
        # Most tests have none of the words, and need not be parsed.
        if any(word in text for word in words) and any(_is_of(module, names, *each) for each in _imports(text)):
            found.add(test)
    return sorted(test for test in found if test.exists())


def _is_of(module: str, names: set[str], origin: str, name: str) -> bool:
    """Whether an import of `name` from `origin` is one of the module."""
    imported = f"{origin}.{name}"
    if any(f"{each}.".startswith(f"{module}.") for each in (origin, imported)):
        return True
    return module.startswith(f"{origin}.") and name in names


def _defined_in(source: Path) -> set[str]:
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name for node in ast.parse(source.read_text()).body if isinstance(node, definitions)}


def _imports(text: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


if __name__ == "__main__":
    try:
        tests = find_tests(Path(sys.argv[1]))
    except ValueError as error:
        sys.exit(f"error: {error}")
    if not tests:
        sys.exit(f"error: no test imports {sys.argv[1]}; see who does: git grep for its name")
    print("\n".join(str(test.relative_to(TESTS.parent)) for test in tests))
