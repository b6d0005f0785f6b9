"""What is searched: a tool as it describes itself."""

from dataclasses import dataclass, field

from toolpost.base.ids import JsonObject


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """One tool, as far as it can be found by what it says of itself."""

    name: str
    """The name on the wire, `server__tool`; unique within an index."""
    server: str = ""
    title: str = ""
    description: str = ""
    input_schema: JsonObject = field(default_factory=dict)
    server_description: str = ""
    """What the server says of itself, if it does."""
    digest: str = ""
    """Names the definition: as long as it stays the same, work done on this document is used again."""
