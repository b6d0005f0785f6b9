"""The libraries of the extra `toolpost[workspace]`, imported when first used, so that the gateway starts without them.

Each function raises `CapabilityMissing` if its library is not installed.
"""

import importlib
import importlib.util
from typing import Any, Final

from toolpost import CapabilityMissing

EXTRA_HINT: Final = "pip install 'toolpost[workspace]'"


def tantivy() -> Any:
    return _import("tantivy", "the search engine")


def tree_sitter() -> Any:
    return _import("tree_sitter", "the parser")


def grammar(module: str) -> Any:
    return _import(module, "the grammar")


def re2() -> Any:
    """Return RE2, whose time is linear in the text, whatever the pattern."""
    return _import("re2", "the pattern engine")


def watchfiles() -> Any:
    return _import("watchfiles", "the watcher of files")


def missing_modules() -> list[str]:
    """Return the names of the required modules that are not installed."""
    return [name for name in ("tantivy", "tree_sitter", "re2", "pathspec") if not has(name)]


def has(name: str) -> bool:
    """Whether a module is installed; it is not imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _import(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CapabilityMissing(f"{what}, `{name}`, is not installed.", hint=EXTRA_HINT, module=name) from error
