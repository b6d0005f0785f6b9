"""URI templates of resources (RFC 6570): which URIs one matches, and the values in them.

Supported are `{name}` for one part of a path, `{+name}` and `{name*}` for several, and `{?a,b}` at the end for a query whose
values may be missing. Values are decoded. One that would lead out of its place is no match: `/` and `\\` in a `{name}`,
and `..` anywhere, so that a function that reads files by a value cannot be led elsewhere.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote

_EXPRESSION: Final = re.compile(r"\{([+?]?)([^{}]*)\}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class UriTemplate:
    """A template, compiled."""

    template: str
    names: tuple[str, ...]
    """Of all values, in order."""
    optional: frozenset[str]
    """Of the values in the query."""
    _pattern: re.Pattern[str]
    _groups: dict[str, bool]
    """By the name of a value in the path, whether it may have several parts."""

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values in a URI, None if the template does not match."""
        path, _, query = uri.partition("?") if self.optional else (uri, "", "")
        found = self._pattern.fullmatch(path)
        if found is None:
            return None
        values = {name: unquote(found[name]) for name in self._groups}
        if any(not _is_in_place(values[name], is_long=is_long) for name, is_long in self._groups.items()):
            return None
        given = parse_qs(query, keep_blank_values=True)
        return values | {name: given[name][-1] for name in self.optional if name in given}


def parse_template(template: str) -> UriTemplate:
    """Compile a template; raises ValueError for one that is not supported."""
    pattern, groups, optional, end = "", dict[str, bool](), list[str](), 0
    for found in _EXPRESSION.finditer(template):
        operator, inner = found.groups()
        pattern += re.escape(template[end : found.start()])
        end = found.end()
        names = [name.strip() for name in inner.split(",")]
        if operator == "?":
            if end != len(template):
                raise ValueError(f"`{template}`: `{found[0]}` must be at the end")
            optional += [_check_name(name, template) for name in names]
            continue
        if len(names) != 1:
            raise ValueError(f"`{template}`: `{found[0]}` may name one value only")
        is_long = operator == "+" or names[0].endswith("*")
        name = _check_name(names[0].removesuffix("*"), template)
        if name in groups:
            raise ValueError(f"`{template}`: `{name}` is in it twice")
        groups[name] = is_long
        pattern += f"(?P<{name}>{'.+' if is_long else '[^/?#]+'})"
    pattern += re.escape(template[end:])
    if "{" in template[end:] or "}" in template[end:]:
        raise ValueError(f"`{template}`: a brace has no partner")
    return UriTemplate(
        template=template,
        names=(*groups, *optional),
        optional=frozenset(optional),
        _pattern=re.compile(pattern),
        _groups=groups,
    )


def _check_name(name: str, template: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"`{template}`: `{name}` is no name of a parameter")
    return name


def _is_in_place(value: str, *, is_long: bool) -> bool:
    parts = re.split(r"[/\\]", value)
    return "\0" not in value and ".." not in parts and (is_long or len(parts) == 1)
