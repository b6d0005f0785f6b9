"""The deliberate late imports: what the index is made of is optional, and loaded when an index is first asked for."""

import importlib
import importlib.util
from typing import Any, Final

from toolpost.contracts.errors import CapabilityMissing

EXTRA_HINT: Final = "pip install 'toolpost[workspace]'"


def tantivy() -> Any:
    """Return the search engine."""
    return _module("tantivy", "the search engine")


def tree_sitter() -> Any:
    """Return the parser."""
    return _module("tree_sitter", "the parser")


def grammar(module: str) -> Any:
    """Return one language's grammar."""
    return _module(module, "the grammar")


def re2() -> Any:
    """Return the pattern engine, whose time is linear in the text whatever the pattern is."""
    return _module("re2", "the pattern engine")


def watchfiles() -> Any:
    """Return what listens to the file system."""
    return _module("watchfiles", "the watcher of files")


def missing_modules() -> list[str]:
    """Name what no index can be built and searched without, and is not installed."""
    return [name for name in ("tantivy", "tree_sitter", "re2", "pathspec") if not has(name)]


def has(name: str) -> bool:
    """Say whether a module can be loaded, without loading it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _module(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CapabilityMissing(f"{what}, `{name}`, is not installed.", hint=EXTRA_HINT, module=name) from error
