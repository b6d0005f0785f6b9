"""A tool held to its contract: the promise, and the way to run it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from toolpost.authoring.context import Context
from toolpost.base.ids import Json, JsonObject, PluginName, ToolName
from toolpost.contracts.contract import Contract
from toolpost.contracts.errors import ContractRefused
from toolpost.upstreams.supervisor import SentRequest


class ToolReturn(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool gave back: plain JSON, and content blocks beside it."""

    value: Json = None
    content: Sequence[JsonObject] = ()
    passed: Mapping[str, msgspec.Raw] | None = None
    """The fields of a server's own result, as they came; None for a function's."""
    results: Literal["enforce", "warn", "off"] = "enforce"
    facts: JsonObject | None = None
    """What is told about the answer beside it, under our key in `_meta`."""


@dataclass(frozen=True, kw_only=True)
class ProvidedTool:
    """One tool, ready to be called."""

    contract: Contract
    provider: PluginName
    invoke: Callable[[JsonObject, Context], Awaitable[ToolReturn]]
    on_fault: Callable[[str], None] | None = None
    """Hears of what the source is to blame for and cannot see itself: a deadline missed, a result that breaks its schema."""
    waits: bool = False
    """Whether to run it is to wait for somebody else, with no code of the tool's own in this process."""
    ask_ahead: Callable[[JsonObject, Context], SentRequest | None] | None = None
    """Asks that somebody at once, if they are at hand. What it gives is put into the context, where `invoke` finds it."""
    read: Callable[[bytes], ToolReturn] | None = None
    """Reads what they answer, as `invoke` does; raises if that is no result."""


class Provider(Protocol):
    """Brings tools, and says which of its tools could not be held."""

    @property
    def name(self) -> PluginName:
        """The name before the `__`."""
        ...

    @property
    def description(self) -> str:
        """Words of its own to find its tools by. A server's are untrusted: they are indexed and never shown."""
        ...

    @property
    def tools(self) -> Mapping[ToolName, ProvidedTool]:
        """The tools that can be called."""
        ...

    @property
    def quarantined(self) -> Mapping[ToolName, ProvidedTool]:
        """The tools that are not listed, and answer only with what changed."""
        ...

    @property
    def refused(self) -> Sequence[ContractRefused]:
        """The tools that were turned away, each with plugin, tool, place and reason."""
        ...
