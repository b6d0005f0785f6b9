"""Marks of settings, given to their `Meta(extra=…)`: what a field says about itself besides its type and its meaning."""

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

LATE: Final = {"late": True}
"""References in its texts are replaced where it is used, not when the file is read: it may be missing where it is not needed."""
SECRET: Final = {"late": True, "secret": True}
"""Late, and its literal texts are never shown."""
ADVANCED: Final = {"advanced": True}
"""Few gateways need it: it is on the second page of the configuration reference."""


def is_late(kind: Any) -> bool:
    """Whether a field of this type is read as it is written."""
    return bool(_marks_of(kind).get("late"))


def is_secret(kind: Any) -> bool:
    """Whether texts of a field of this type must not be shown."""
    return bool(_marks_of(kind).get("secret"))


def is_advanced(kind: Any) -> bool:
    """Whether a field of this type is on the second page of the reference."""
    return bool(_marks_of(kind).get("advanced"))


def own_type(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct type of the own keys of a table of sections, which stand beside its entries; None without any."""
    found: type[msgspec.Struct] | None = _marks_of(kind).get("own")
    return found


def _marks_of(kind: Any) -> Mapping[str, Any]:
    if get_origin(kind) is not Annotated:
        return {}
    _, *metas = get_args(kind)
    found: dict[str, Any] = {}
    for meta in metas:
        if isinstance(meta, msgspec.Meta):
            found |= meta.extra or {}
    return found


def types_of(struct: type[msgspec.Struct] | None) -> Mapping[str, Any]:
    """Return the type of each key of a table; nothing for None."""
    return {} if struct is None else {field.encode_name: field.type for field in msgspec.structs.fields(struct)}


def section_type(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct type of a section, optional or not; None for other settings and for tables of sections."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    if get_origin(kind) in (Annotated, Union, UnionType):
        return next((found for part in get_args(kind) if (found := section_type(part)) is not None), None)
    return None


def entry_type(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct type of the entries of a table of sections; None for other settings."""
    if get_origin(kind) is Annotated:
        return entry_type(get_args(kind)[0])
    return section_type(get_args(kind)[1]) if get_origin(kind) is dict else None
