"""A tool's result with content of its own: besides data, or in its place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from toolpost.authoring.content import Content
from toolpost.base.ids import Json, JsonObject


@dataclass(frozen=True, kw_only=True)
class Result:
    """Data, content blocks, or both: text, images, audio, files and links."""

    data: Json | msgspec.UnsetType = msgspec.UNSET
    """Sent as structured content and as JSON text; without it, a client gets the content alone."""
    content: Sequence[Content | str | JsonObject] = ()
    """Sent after the JSON text. Text is a text block; a dict is a content block as MCP writes it."""
    is_error: bool = False
    """Whether the tool failed: the content then tells how, in place of the error object."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """The `_meta` of the result; clients and applications read it, models do not."""

    @property
    def is_custom(self) -> bool:
        """Whether it is more than data with content: it is then sent as it is."""
        return self.data is msgspec.UNSET or self.is_error or bool(self.meta)
