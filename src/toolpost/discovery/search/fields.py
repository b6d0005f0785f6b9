"""A document's fields: which words it offers, and where."""

from collections.abc import Iterator
from typing import Literal, get_args

from toolpost.base.ids import Json
from toolpost.discovery.search.document import Document

Field = Literal[
    "name", "title", "server", "description", "argument names", "argument descriptions", "server description"
]
FIELDS: tuple[Field, ...] = get_args(Field)

_DEEPEST = 2
_PROPERTIES = 64
_TEXT = 4000
"""How much of one text is read: a description of a megabyte is no better found than its first page."""


def fields_of(document: Document) -> dict[Field, str]:
    """Return the text of every field."""
    names: list[str] = []
    descriptions: list[str] = []
    for name, text in _arguments(document.input_schema, 1):
        names.append(name)
        descriptions.append(text)
    return {
        "name": own_name(document)[:_TEXT],
        "title": document.title[:_TEXT],
        "server": document.server[:_TEXT],
        "description": document.description[:_TEXT],
        "argument names": " ".join(names)[:_TEXT],
        "argument descriptions": " ".join(descriptions)[:_TEXT],
        "server description": document.server_description[:_TEXT],
    }


def own_name(document: Document) -> str:
    """Return a tool's name without its server's."""
    for between in ("__", "/", "."):
        if document.server and document.name.startswith(document.server + between):
            return document.name[len(document.server) + len(between) :]
    return document.name


def described(document: Document) -> str:
    """Say in one sentence what a tool is: what its meaning is taken from."""
    return f"{document.server} {own_name(document)} {document.title}: {document.description}"[:_TEXT]


def _arguments(schema: Json, depth: int) -> Iterator[tuple[str, str]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return
    for name, property_ in list(properties.items())[:_PROPERTIES]:
        if not isinstance(property_, dict):
            yield name, ""
            continue
        described = property_.get("description")
        values = property_.get("enum")
        texts = [described] if isinstance(described, str) else []
        if isinstance(values, list):
            texts += [value for value in values[:_PROPERTIES] if isinstance(value, str)]
        yield name, " ".join(texts)
        if depth < _DEEPEST:
            yield from _arguments(property_, depth + 1)
            yield from _arguments(property_.get("items"), depth + 1)
