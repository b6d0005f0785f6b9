"""Names for the tools of a server: `server__tool`, accepted by all clients, and unique."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

from toolpost.base.ids import PluginName, ToolName
from toolpost.contracts.contract import NAME_LIMIT

_UNUSABLE = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_CHARS = 8


def tool_names(server: PluginName, tools: Iterable[str]) -> dict[str, ToolName]:
    """Return a name for each tool of a server, by the server's own name for it.

    A character that clients do not accept becomes `_`. A name that is too long, or collides with another one after that, ends in
    eight digits of a digest of the original: a tool has the same name at every start, whatever other tools the server has.
    """
    originals = list(dict.fromkeys(tools))
    plain = {tool: f"{server}__{_UNUSABLE.sub('_', tool)}" for tool in originals}
    counts = Counter(plain.values())
    named: dict[str, ToolName] = {}
    for tool, name in plain.items():
        is_changed = name != f"{server}__{tool}"
        # Of colliding names, one that is the original keeps it.
        collides = counts[name] > 1 and is_changed
        if not collides and len(name) <= NAME_LIMIT:
            named[tool] = ToolName(name)
            continue
        digest = hashlib.sha256(tool.encode()).hexdigest()[:_DIGEST_CHARS]
        named[tool] = ToolName(f"{name[: NAME_LIMIT - _DIGEST_CHARS - 1]}_{digest}")
    return named
