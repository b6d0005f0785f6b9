"""A result with more to show than its data."""

from collections.abc import Sequence
from dataclasses import dataclass

from toolpost.base.ids import Json, JsonObject


@dataclass(frozen=True, kw_only=True)
class Result:
    """Data, and images, audio, links or further text beside it."""

    data: Json
    content: Sequence[JsonObject] = ()
    """MCP content blocks, sent after the JSON text."""
