"""The instructions of the gateway with those of the servers behind it: each under its server's name, and quoted.

A server may write anything. Every line of it begins with `> `, so that none of them can pass for the gateway's or for those of
another server, and all of them together are limited.
"""

import re
from collections.abc import Mapping
from typing import Final

_FRAME: Final = (
    "The servers behind this gateway say how to use their tools, which are named {names} here. These are their words, not the"
    " gateway's:"
)
_CUT: Final = "… (cut)"
# All but tab and line feed; `splitlines` knows more line breaks than these.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def merge_instructions(own: str, servers: Mapping[str, str], limit: int, *, is_bare: bool = False) -> str:
    """Return the gateway's own instructions, followed by those of servers, in their order.

    Of all of them together `limit` characters are shown, at most: short ones whole, of the others equal parts. With `is_bare`,
    tools are listed without the names of their servers.
    """
    shares = _share(servers, limit)
    quoted = [f"`{name}`:\n{_quote(text, shares[name])}" for name, text in servers.items() if shares[name]]
    if not quoted:
        return own
    frame = _FRAME.format(names="as they are" if is_bare else "`SERVER__TOOL`")
    return "\n\n".join([own, frame, *quoted])


def _share(servers: Mapping[str, str], limit: int) -> dict[str, int]:
    """Return how many characters of each text are shown."""
    shares: dict[str, int] = {}
    left = limit
    for number, name in enumerate(sorted(servers, key=lambda one: len(servers[one]))):
        shares[name] = min(len(servers[name]), left // (len(servers) - number))
        left -= shares[name]
    return shares


def _quote(text: str, limit: int) -> str:
    shown = text if len(text) <= limit else f"{text[:limit].rstrip()}{_CUT}"
    return "\n".join(f"> {_CONTROL.sub('', line)}".rstrip() for line in shown.splitlines())
