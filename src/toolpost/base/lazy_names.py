"""Names of a package that are looked up when first used: `__init__.pyi` lists them for us, for type checkers and for editors.

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
"""

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package. Its stub has lines `from MODULE import NAME as NAME` alone."""
    stub = ast.parse(Path(file).with_suffix(".pyi").read_bytes())
    imports = (node for node in stub.body if isinstance(node, ast.ImportFrom))
    homes = {alias.name: node.module or "" for node in imports for alias in node.names}
    module = sys.modules[package]

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(module, name, value)
        return value

    return find, lambda: sorted({*vars(module), *homes}), sorted(homes)
