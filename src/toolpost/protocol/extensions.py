"""Extensions of MCP: which methods belong to none of its revisions, and the declarations of each side.

Either side declares extensions in its capabilities: `extensions`, by identifier, and `experimental`, by any name. MCP does not
say which methods an extension has, so that every method that no revision knows counts as an extension's.

What is read here comes from clients and servers that may send anything: it is bounded when it is selected, and a method is
written into messages and headers only if it consists of harmless characters.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from toolpost.base.ids import Json, JsonObject

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The tasks extension, which the gateway serves itself: what servers and clients declare of it is not passed on."""

CORE_REQUESTS: Final = frozenset(
    {
        *("initialize", "ping", "server/discover", "subscriptions/listen", "logging/setLevel", "completion/complete"),
        *("tools/list", "tools/call", "prompts/list", "prompts/get"),
        *("resources/list", "resources/read", "resources/templates/list", "resources/subscribe"),
        "resources/unsubscribe",
        *("sampling/createMessage", "elicitation/create", "roots/list"),
    }
)
"""The requests of all revisions, in both directions. A test compares them with the SDK's."""

_TASKS_PREFIX: Final = "tasks/"
_NOTIFICATION_PREFIX: Final = "notifications/"
_METHOD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_.-]+)*")
METHOD_LIMIT: Final = 128

CORE_NOTIFICATIONS: Final = frozenset(
    {
        *("notifications/cancelled", "notifications/progress", "notifications/message", "notifications/initialized"),
        *("notifications/tools/list_changed", "notifications/prompts/list_changed"),
        *("notifications/resources/list_changed", "notifications/resources/updated"),
        *("notifications/roots/list_changed", "notifications/elicitation/complete"),
        "notifications/subscriptions/acknowledged",
    }
)
"""The notifications of all revisions, in both directions."""

KINDS: Final = ("extensions", "experimental")
"""The capabilities in which extensions are declared."""

NAMES_LIMIT: Final = 64
"""How many extensions of one kind are taken from one client or server."""
NAME_LIMIT: Final = 200
BYTES_LIMIT: Final = 16 * 1024
"""How large the settings of all of them may be together."""
MERGED_LIMIT: Final = 64 * 1024
"""The same for what all servers declare together."""

_encode: Final = msgspec.json.Encoder().encode


def is_extension_request(method: str) -> bool:
    """Whether a request is an extension's: no revision knows it, it is no task's, and it can be written anywhere."""
    return (
        method not in CORE_REQUESTS
        and not method.startswith((_TASKS_PREFIX, _NOTIFICATION_PREFIX))
        and len(method) <= METHOD_LIMIT
        and _METHOD.fullmatch(method) is not None
    )


def is_extension_notification(method: str) -> bool:
    """The same for a notification; some extensions do not begin them with `notifications/`."""
    return (
        method not in CORE_NOTIFICATIONS
        and method not in CORE_REQUESTS
        and not method.startswith((f"{_NOTIFICATION_PREFIX}tasks", _TASKS_PREFIX))
        and len(method) <= METHOD_LIMIT
        and _METHOD.fullmatch(method) is not None
    )


def select_extensions(capabilities: object) -> JsonObject:
    """Select `extensions` and `experimental` of what a side declared, within limits; each is left out if it is empty.

    An extension that exceeds a limit is left out alone: the rest is exactly as declared.
    """
    if not isinstance(capabilities, dict):
        return {}
    selected: JsonObject = {}
    left = BYTES_LIMIT
    for kind in KINDS:
        declared = capabilities.get(kind)
        kept: JsonObject = {}
        for name, settings in declared.items() if isinstance(declared, dict) else ():
            if len(kept) == NAMES_LIMIT:
                break
            if name == TASKS or not 0 < len(name) <= NAME_LIMIT or not isinstance(settings, dict):
                continue
            size = len(_encode({name: settings}))
            if size <= left:
                kept[name] = settings
                left -= size
        if kept:
            selected[kind] = kept
    return selected


def declares_extensions(capabilities: Mapping[str, object]) -> bool:
    """Whether selected capabilities name an extension."""
    return "extensions" in capabilities or "experimental" in capabilities


def merge_extensions(declared: Iterable[JsonObject]) -> JsonObject:
    """Merge what several servers declare, as `select_extensions` returns it, in the order in which they are configured.

    Of one extension, settings are merged: objects key by key, lists joined, truths true if one is. Of any other two values
    the first counts.
    """
    merged: JsonObject = {}
    size = 0
    for selected in declared:
        for kind, extensions in selected.items():
            for name, settings in extensions.items():
                size += len(_encode({name: settings}))
                if size > MERGED_LIMIT:
                    return merged
                known = merged.setdefault(kind, {})
                known[name] = _merge(known[name], settings) if name in known else settings
    return merged


def _merge(first: Json, second: Json) -> Json:
    if isinstance(first, dict) and isinstance(second, dict):
        both = {key: _merge(value, second[key]) if key in second else value for key, value in first.items()}
        return both | {key: value for key, value in second.items() if key not in first}
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *(value for value in second if value not in first)]
    if isinstance(first, bool) and isinstance(second, bool):
        return first or second
    return first


def match_extension(method: str, selected: JsonObject) -> int:
    """Return how well a method fits the name of an extension that a server declares; 0 if it fits none.

    `com.example/skills` has `com.example/skills` and everything below it (3), and `skills/…` (2); `com.example/…` may be of
    any extension of its vendor (1).
    """
    name = method.removeprefix(_NOTIFICATION_PREFIX)
    first = name.partition("/")[0]
    best = 0
    for extensions in selected.values():
        for identifier in extensions:
            vendor, _, own = identifier.rpartition("/")
            if name == identifier or name.startswith(f"{identifier}/"):
                return 3
            best = max(best, 2 if first == own else 1 if first == vendor else 0)
    return best
