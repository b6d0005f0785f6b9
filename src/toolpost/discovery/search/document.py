"""A tool as it is indexed: its definition as text by field."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from toolpost.base.ids import Json, JsonObject
from toolpost.discovery.search.words import Action, action_of

Field = Literal[
    "name", "title", "server", "description", "argument names", "argument descriptions", "server description"
]
FIELDS: tuple[Field, ...] = get_args(Field)

_MAX_DEPTH = 2
_MAX_PROPERTIES = 64
_NAME_WORDS = 16
_MAX_CHARS = 4000
"""Per field: the rest of a megabyte-long description would not make it easier to find."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolDocument:
    """One tool as the index reads it."""

    name: str
    """The name on the wire, `server__tool`; unique within an index."""
    server: str = ""
    title: str = ""
    description: str = ""
    input_schema: JsonObject = field(default_factory=dict)
    server_description: str = ""
    """The `instructions` of the server. Untrusted: indexed, and never shown."""
    digest: str = ""
    """Identifies the definition: a document with the same digest is not indexed again."""


def fields_of(document: ToolDocument) -> dict[Field, str]:
    """Return the text of every field, truncated."""
    names: list[str] = []
    descriptions: list[str] = []
    for name, text in _iterate_arguments(document.input_schema, 1):
        names.append(name)
        descriptions.append(text)
    return {
        "name": own_name(document)[:_MAX_CHARS],
        "title": document.title[:_MAX_CHARS],
        "server": document.server[:_MAX_CHARS],
        "description": document.description[:_MAX_CHARS],
        "argument names": " ".join(names)[:_MAX_CHARS],
        "argument descriptions": " ".join(descriptions)[:_MAX_CHARS],
        "server description": document.server_description[:_MAX_CHARS],
    }


def own_name(document: ToolDocument) -> str:
    """Return the tool's name without the prefix of its server."""
    for separator in ("__", "/", "."):
        if document.server and document.name.startswith(document.server + separator):
            return document.name[len(document.server) + len(separator) :]
    return document.name


def find_action(document: ToolDocument) -> Action:
    """Return what a tool does by the verb in its name, else by the first word of its description."""
    return action_of(own_name(document)[:_MAX_CHARS], _NAME_WORDS) or action_of(document.description[:_MAX_CHARS], 1)


def summarize(document: ToolDocument) -> str:
    """Return the sentence that is embedded for a tool: server, name, title, description."""
    return f"{document.server} {own_name(document)} {document.title}: {document.description}"[:_MAX_CHARS]


def _iterate_arguments(schema: Json, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the name of each property with its description and the strings of its enum.

    Schemas of upstream servers are read here before they are checked, so any part may have the wrong type.
    """
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return
    for name, property_ in list(properties.items())[:_MAX_PROPERTIES]:
        if not isinstance(property_, dict):
            yield name, ""
            continue
        description = property_.get("description")
        values = property_.get("enum")
        texts = [description] if isinstance(description, str) else []
        if isinstance(values, list):
            texts += [value for value in values[:_MAX_PROPERTIES] if isinstance(value, str)]
        yield name, " ".join(texts)
        if depth < _MAX_DEPTH:
            yield from _iterate_arguments(property_, depth + 1)
            yield from _iterate_arguments(property_.get("items"), depth + 1)
