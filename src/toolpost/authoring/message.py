"""Messages of prompts and of sampling: a role and content."""

from collections.abc import Sequence
from typing import Any, Literal

from toolpost.authoring.content import Content, Text
from toolpost.base.ids import JsonObject

Role = Literal["user", "assistant"]


class Message:
    """One message, `Message("Hello")` or `Message(Image(png), role="assistant")`."""

    __slots__ = ("content", "role")

    def __init__(self, content: str | Content | JsonObject, *, role: Role = "user") -> None:
        """Take text, content, or a content block as MCP writes it."""
        self.content = content
        self.role: Role = role

    def as_object(self) -> JsonObject:
        """Return it as MCP writes it."""
        content = Text(self.content) if isinstance(self.content, str) else self.content
        return {
            "role": self.role,
            "content": content.as_block() if isinstance(content, Content) else dict(content),
        }


def as_messages(value: Any) -> list[JsonObject]:
    """Return messages from what an author gives: text, content, a message, or a list of these; raises TypeError."""
    items: Sequence[Any] = value if isinstance(value, list | tuple) else (value,)
    return [_as_message(item) for item in items]


def _as_message(item: Any) -> JsonObject:
    if isinstance(item, Message):
        return item.as_object()
    if isinstance(item, str | Content):
        return Message(item).as_object()
    if isinstance(item, dict) and "role" in item and "content" in item:
        return dict(item)
    raise TypeError(f"{type(item).__name__} is no message: give text, content, or a Message")
