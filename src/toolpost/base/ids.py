"""The names and ids that cross module borders. Each has a type, so that a mix-up does not compile."""

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
"""A conversation, named by us."""

TurnId = NewType("TurnId", str)
AgentSessionId = NewType("AgentSessionId", str)
"""A session, named by the agent that has it. Never a thread's: the same conversation may have many of these."""

Digest = NewType("Digest", str)
"""`sha256:` and 64 hexadecimal digits."""

META_KEY = "dev.toolpost/meta"
"""The one key of ours in any `_meta`."""

TOOL_THREAD = "tool "
"""What the name of a thread begins with, while a tool runs in it."""

_process = os.urandom(6).hex()
_calls = itertools.count(1)
_random = random.Random(os.urandom(32))  # noqa: S311 (names, not secrets)


def new_call_id() -> CallId:
    """Name a call: unique across processes, short enough to read out, cheap enough for every call."""
    return CallId(f"{_process}-{next(_calls):x}")


def new_trace_id() -> TraceId:
    """Make a W3C trace id for a call that came without one."""
    # Random enough to be told apart, and nobody relies on more: the system's own source costs every call a system call.
    return TraceId(f"{_random.getrandbits(128):032x}")


def new_thread_id() -> ThreadId:
    """Name a conversation; whoever guesses one gets no further than being asked who they are."""
    return ThreadId(f"t-{_random.getrandbits(96):024x}")


def new_turn_id() -> TurnId:
    """Name a turn of a conversation."""
    return TurnId(f"u-{_random.getrandbits(96):024x}")
