"""The names of a server's tools: `server__tool`, made to fit what clients take, never the same twice."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

from toolpost.base.ids import PluginName, ToolName
from toolpost.contracts.contract import NAME_LIMIT

_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_CHARS = 8


def tool_names(server: PluginName, tools: Iterable[str]) -> dict[str, ToolName]:
    """Name every tool of a server.

    A character that clients do not take becomes `_`. A name that is too long, or that another tool has already, ends in
    eight digits made from its own: the same tool has the same name at every start, whatever else the server has.
    """
    originals = list(dict.fromkeys(tools))
    plain = {tool: f"{server}__{_UNUSABLE.sub('_', tool)}" for tool in originals}
    wanted = Counter(plain.values())
    named: dict[str, ToolName] = {}
    for tool, name in plain.items():
        is_changed = name != f"{server}__{tool}"
        clashes = wanted[name] > 1 and is_changed
        named[tool] = ToolName(_append_digest(name, tool) if clashes or len(name) > NAME_LIMIT else name)
    return named


def _append_digest(name: str, tool: str) -> str:
    mark = hashlib.sha256(tool.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: NAME_LIMIT - _DIGEST_CHARS - 1]}_{mark}"
