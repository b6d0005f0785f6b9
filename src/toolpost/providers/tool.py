"""The common interface of providers: a tool with its contract and the function that runs it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import msgspec

from toolpost.authoring.context import Context
from toolpost.authoring.middleware import ToolInfo
from toolpost.base.ids import Json, JsonObject, PluginName, ToolName, make_full_name
from toolpost.contracts.contract import Contract
from toolpost.contracts.errors import ContractRefused
from toolpost.upstreams.transport import SentRequest


class RawResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool: plain JSON, and content blocks."""

    value: Json | msgspec.UnsetType = None
    """UNSET for a function that returned content alone."""
    content: Sequence[JsonObject] = ()
    is_custom: bool = False
    """Whether a function made its result itself: content in place of data, `isError`, or `_meta`."""
    is_error: bool = False
    meta: JsonObject | None = None
    upstream_fields: Mapping[str, msgspec.Raw] | None = None
    """The fields of a server's result, unchanged; None for the result of a function."""
    results: Literal["enforce", "warn", "off"] = "enforce"
    """How strictly `upstream_fields` are checked against the output schema: the setting `results` of the server."""
    facts: JsonObject | None = None
    """Added to the answer's `_meta`, under Toolpost's own key."""


class FastRequest(NamedTuple):
    """How a tool's request is sent to its server before the call has a task: for the fast path."""

    send: Callable[[JsonObject, Context], SentRequest | None]
    """Sends the request if that needs no waiting, else returns None."""
    read: Callable[[bytes], RawResult]
    """Parses the result of such a request; raises if it is none."""
    finish: Callable[[SentRequest, JsonObject, Context], Awaitable[RawResult]]
    """Waits for the result of such a request, where `invoke` would send one."""


@dataclass(frozen=True, kw_only=True)
class ProvidedTool:
    """A tool that can be called."""

    contract: Contract
    provider: PluginName
    invoke: Callable[[JsonObject, Context], Awaitable[RawResult]]
    on_failure: Callable[[str], None] | None = None
    """Called with failures that the provider cannot see itself: a missed deadline, a result that breaks its schema."""
    is_refused: bool = False
    """Whether `invoke` only refuses, in quarantine or by the mode: then neither middleware nor guards are asked."""
    owner: str = ""
    """Whose credentials it is run with, where callers have their own; else empty."""
    is_remote: bool = False
    """Whether it runs outside this process, which only waits for the answer."""
    fast_request: FastRequest | None = None
    """None for a tool whose request cannot be sent before the call has a task."""
    runs: "Sequence[ProvidedTool]" = ()
    """The tools that it calls in its place, which are not listed themselves: those of a group's servers."""

    @property
    def full_name(self) -> ToolName:
        """Its name with its provider's, by which settings know it also where its plugin is served alone."""
        return make_full_name(self.provider, self.contract.name)

    @property
    def info(self) -> ToolInfo:
        """What a predicate of a middleware or a guard is given."""
        contract = self.contract
        return ToolInfo(
            name=contract.name,
            aliases=contract.aliases if not self.runs else (),
            provider=self.provider,
            is_upstream=contract.is_upstream,
            servers=[each.provider for each in self.runs or (self,)] if contract.is_upstream else (),
            annotations=contract.annotations,
        )


class Provider(Protocol):
    """The tools of one plugin or server."""

    @property
    def name(self) -> PluginName:
        """The prefix of its tools' names, before the `__`."""
        ...

    @property
    def description(self) -> str:
        """Its own description, to find its tools by. That of a server is untrusted: it is indexed and never shown."""
        ...

    @property
    def tools(self) -> Mapping[ToolName, ProvidedTool]: ...

    @property
    def quarantined(self) -> Mapping[ToolName, ProvidedTool]:
        """Tools that are not listed, and answer every call with what changed."""
        ...

    @property
    def refused(self) -> Sequence[ContractRefused]:
        """Tools whose contract was refused, each with plugin, tool, place and reason."""
        ...
