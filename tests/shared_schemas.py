"""What authors write is compiled once a process, instead of once a gateway: thousands of tests open one with the same tools.

Only the schemas of plugins' tools are shared, never those of servers: what a hostile one costs is measured. A compiled schema is
not changed by anybody, and what is refused is compiled, and refused, each time.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from toolpost.contracts import contract
from toolpost.contracts.schema import Schema

LARGEST_BYTES = 20_000

_compile: Callable[..., Schema] = contract._compile_for_tool
_compiled: dict[bytes, Schema] = {}


def install() -> None:
    """Share compiled schemas from now on."""
    contract._compile_for_tool = _compile_once  # type: ignore[assignment]  # all it is called with is passed on


def _compile_once(raw: Any, *facts: Any, kind: str = "plugin", **options: bool) -> Schema:
    try:
        key = msgspec.json.encode((raw, options))
    except (TypeError, ValueError, RecursionError):  # no JSON: it will be refused
        return _compile(raw, *facts, kind=kind, **options)
    if kind != "plugin" or len(key) > LARGEST_BYTES:
        return _compile(raw, *facts, kind=kind, **options)
    if (found := _compiled.get(key)) is None:
        found = _compiled[key] = _compile(raw, *facts, kind=kind, **options)
    return found
