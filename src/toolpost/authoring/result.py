"""A result with content blocks besides its data."""

from collections.abc import Sequence
from dataclasses import dataclass

from toolpost.base.ids import Json, JsonObject


@dataclass(frozen=True, kw_only=True)
class Result:
    """Data, with images, audio, links or further text as content blocks."""

    data: Json
    content: Sequence[JsonObject] = ()
    """MCP content blocks, sent after the JSON text."""
