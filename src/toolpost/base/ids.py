"""Names and ids that cross module boundaries. Each has a type, so that a mix-up does not pass the type checker."""

import itertools
import os
import random
from typing import Any, NewType

Json = Any
"""A JSON value: None, bool, int, float, str, list or dict of them."""

JsonObject = dict[str, Any]

PluginName = NewType("PluginName", str)
ToolName = NewType("ToolName", str)
"""A tool's name on the wire, `plugin__tool`."""

CallId = NewType("CallId", str)
TraceId = NewType("TraceId", str)
CallerId = NewType("CallerId", str)
ThreadId = NewType("ThreadId", str)
"""A conversation; the id is made by Toolpost."""

Digest = NewType("Digest", str)
"""`sha256:` and 64 hexadecimal digits."""

META_KEY = "dev.toolpost/meta"
"""The only key that Toolpost adds to `_meta`."""

TOOL_THREAD = "tool "
"""Prefix of the name of an operating system thread while a tool runs in it."""

_process = os.urandom(6).hex()
_calls = itertools.count(1)
_random = random.Random(os.urandom(32))  # noqa: S311 (names, not secrets)


def _differ_from_parent() -> None:
    global _process  # noqa: PLW0603 (one for each process)
    _process = os.urandom(6).hex()
    _random.seed(os.urandom(32))


if hasattr(os, "register_at_fork"):
    # A server that loads the program once and forks workers: each would make the same ids.
    os.register_at_fork(after_in_child=_differ_from_parent)


def new_call_id() -> CallId:
    """Return an id that is unique across processes, short enough to read aloud, and cheap enough for every call."""
    return CallId(f"{_process}-{next(_calls):x}")


def call_prefix() -> str:
    """Return what the ids of all calls of this process begin with, and those of no other process."""
    return f"{_process}-"


def new_trace_id() -> TraceId:
    """Return a W3C trace id, for a call that came without one."""
    # Only uniqueness matters here: `os.urandom` would cost every call a system call.
    return TraceId(_random.getrandbits(128).to_bytes(16, "big").hex())


def make_full_name(provider: str, name: str) -> ToolName:
    """Return the name of a tool with its provider's, `payments__pay`; served alone, a plugin lists it as `pay`."""
    return ToolName(name if name.startswith(f"{provider}__") else f"{provider}__{name}")
