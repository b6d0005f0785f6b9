"""The answers of a client, and of its user, to the questions of a tool."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from toolpost.base.ids import JsonObject

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Accepted(Generic[T]):
    """The answer of a user who accepted. It is true, and `Declined` is not: `if answer: use(answer.data)`."""

    data: T
    """What was filled in, as the type that was asked for; None for an address."""
    action: Literal["accept"] = "accept"
    id: str = ""
    """Of a URL elicitation, for `ctx.url_completed`."""

    def __bool__(self) -> Literal[True]:
        return True


@dataclass(frozen=True, kw_only=True)
class Declined:
    """The answer of a user who did not accept."""

    action: Literal["decline", "cancel"]
    """`decline` is a no, `cancel` that the user closed the question without answering."""
    data: None = None
    id: str = ""

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The answer of the client's model."""

    text: str
    """All of its text."""
    content: Sequence[JsonObject]
    """Its content blocks, as MCP writes them: text, images, uses of tools."""
    model: str = ""
    stop_reason: str = ""
    role: str = "assistant"


@dataclass(frozen=True, kw_only=True)
class Root:
    """A folder or file that the client works in."""

    uri: str
    name: str = ""
