"""A server behind the gateway as a source: its tools held to their own schemas, its results passed on as they came."""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import anyio
import msgspec
from anyio import to_thread

from toolpost.authoring.context import Context
from toolpost.base.caller import Caller
from toolpost.base.events import event
from toolpost.base.ids import META_KEY, JsonObject, PluginName, ToolName
from toolpost.contracts.contract import Contract, check_plugin_name, contract_of_upstream
from toolpost.contracts.errors import ContractRefused, UpstreamRefused, UpstreamUnavailable
from toolpost.protocol.mirrored import BadAnnotation, Headers, MirroredArguments
from toolpost.protocol.rpc import Resumption
from toolpost.providers.input_required import check_asking, is_asking, resumption_fields, with_answers
from toolpost.providers.promises import Mode, Promises, Standing
from toolpost.providers.quarantine import withheld
from toolpost.providers.tool import HeldTool, ToolReturn
from toolpost.providers.tool_names import tool_names
from toolpost.upstreams.lists import Slices, are_same
from toolpost.upstreams.notifications import News
from toolpost.upstreams.spec import ServerLimits, ServerSpec
from toolpost.upstreams.supervisor import Sent, Supervisor
from toolpost.upstreams.wire import Notice, ServerRefused, encode

_log = logging.getLogger("toolpost.providers")

STRAY_LIMIT_BYTES = 64 * 1024
"""How much a result may hold besides its content and its questions: `_meta`, and what is not known here."""

_PASSED_ON = ("traceparent", "tracestate", "baggage")

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Progress(msgspec.Struct):
    progress: int | float | None = None
    total: int | float | None = None
    message: str | None = None


class _KnownFields(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"")
    structuredContent: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815 (as on the wire)
    inputRequests: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    requestState: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


_progress = msgspec.json.Decoder(_Progress)
_known_fields = msgspec.json.Decoder(_KnownFields)


QUICK_DEFINITIONS_BYTES = 32 * 1024
"""So much is compiled at once, in 20 ms if it was made to be slow; more is compiled in a thread."""


class Prepared(NamedTuple):
    """The definitions of a server, compiled."""

    tools: dict[ToolName, HeldTool]
    refused: list[ContractRefused]


@dataclass(frozen=True)
class _Placed:
    """The tools of a server by how they stand to their promises."""

    held: dict[ToolName, HeldTool] = field(default_factory=dict)
    withheld: dict[ToolName, HeldTool] = field(default_factory=dict)
    standings: dict[ToolName, Standing] = field(default_factory=dict)


class ServerSource:
    """The tools of one server."""

    def __init__(
        self,
        spec: ServerSpec,
        limits: ServerLimits | None = None,
        *,
        default_timeout_s: float,
        on_seen: Callable[["ServerSource"], None],
        on_change: Callable[["ServerSource"], None],
        on_described: Callable[[], None] = lambda: None,
        promises: Promises,
        contracts: Mode = "observe",
        on_news: Callable[[News], None] = lambda _news: None,
        successor_of: "ServerSource | None" = None,
    ) -> None:
        """Take a specification; as a successor, take over the processes of a source that reaches its server likewise.

        `on_described` is called when the server describes itself in other words and its tools are the same.
        """
        self.name: PluginName = check_plugin_name(spec.name)
        self.spec = spec
        self.supervisor: Supervisor = (
            successor_of.supervisor if successor_of else Supervisor(spec, limits, on_tools=self.learn, on_news=on_news)
        )
        self.definitions: list[JsonObject] | None = None
        """As they came; None until they are known."""
        self.build = ""
        """The version that the server gives itself."""
        self.description = ""
        """The server's title, description and instructions: words to find its tools by, not to be shown."""
        self.timeout_s = spec.timeout_s or default_timeout_s
        self._on_seen = on_seen
        self._on_change = on_change
        self._on_described = on_described
        self._promises = promises
        self._contracts: Mode = spec.contracts or contracts
        self._compiled: dict[ToolName, HeldTool] = {}
        self._held: dict[ToolName, HeldTool] = {}
        self._withheld: dict[ToolName, HeldTool] = {}
        self.standings: dict[ToolName, Standing] = {}
        """The tools that are not as they promised, and how they differ."""
        self._refused: list[ContractRefused] = []
        self.learned_many_at = -math.inf
        """When it last took over a list that was long, on the monotonic clock."""
        self._learning: anyio.Lock = successor_of._learning if successor_of else anyio.Lock()  # noqa: SLF001 (of its own kind)

    @property
    def contracts(self) -> list[Contract]:
        """What every tool promises, of those that are withheld too."""
        return [tool.contract for tool in self._compiled.values()]

    @property
    def tools(self) -> Mapping[ToolName, HeldTool]:
        """The tools that can be called."""
        return self._held

    @property
    def withheld(self) -> Mapping[ToolName, HeldTool]:
        """The tools that are not listed, and answer only with what changed."""
        return self._withheld

    @property
    def refused(self) -> Sequence[ContractRefused]:
        """The tools that were turned away."""
        return self._refused

    async def succeed(self, other: "ServerSource") -> None:
        """Take over what another source of the same server knows, once it has learned what it was told of."""
        before = self.definitions
        async with self._learning:
            pass
        if other.definitions is not None and self.definitions is before:
            await self.learn(other.definitions, other.build, other.description)

    async def learn(self, definitions: list[JsonObject], build: str, description: str = "") -> None:
        """Take the server's definitions, version and description; what has not changed is not compiled again.

        A server decides what it sends, and calls go on meanwhile: many definitions or large ones are compiled in a thread, and
        compared with their promises in slices, beside the tools that are there. These are replaced at the end, together. Two
        instances of a server may tell of its tools at once; the later one waits.
        """
        async with self._learning:
            is_described_anew, self.description = description != self.description, description
            if build == self.build and await are_same(definitions, self.definitions):
                self._on_seen(self)
                if is_described_anew:
                    self._on_described()
                return
            if _are_quick(definitions):
                prepared = self._prepare(definitions, build)
            else:
                self.learned_many_at = time.monotonic()
                prepared = await to_thread.run_sync(self._prepare, definitions, build, abandon_on_cancel=True)
            placed = await self._place_all(prepared.tools)
            slices = Slices()
            for refusal in prepared.refused:
                event(_log, logging.WARNING, "tool refused", server=self.name, reason=refusal.message)
                await slices.give_way()
            self.definitions, self.build = definitions, build
            self._compiled, self._refused = prepared.tools, prepared.refused
            self._use(placed)
            self._on_seen(self)
            self._on_change(self)

    def _known(self, build: str) -> dict[str, tuple[JsonObject, HeldTool]]:
        """Return what is compiled already, by the server's own names; another build is in every contract."""
        if build != self.build:
            return {}
        definitions = {str(d.get("name")): d for d in self.definitions or ()}
        held = {tool.contract.terms.name: tool for tool in self._compiled.values()}
        return {name: (definitions[name], tool) for name, tool in held.items() if name in definitions}

    def _prepare(self, definitions: list[JsonObject], build: str) -> Prepared:
        known = self._known(build)
        names = tool_names(self.name, [d["name"] for d in definitions if _is_named(d)])
        prepared = Prepared({}, [])
        for definition in definitions:
            if not _is_named(definition):
                prepared.refused.append(self._refusal(definition, "name", "a tool has a name"))
                continue
            tool: str = definition["name"]
            name = names[tool]
            if not self.spec.admits(tool) or name in prepared.tools:
                continue
            before, held = known.get(tool, (None, None))
            if held is not None and before == definition and held.contract.name == name:
                prepared.tools[name] = held
                continue
            try:
                prepared.tools[name] = self._hold(definition, name, build)
            except ContractRefused as refusal:
                prepared.refused.append(refusal)
        return prepared

    async def reconsider(self) -> None:
        """Look again at how the tools stand to their promises: one was judged, or there is another lock.

        In slices, as `learn` does, and one after the other with it: both replace the same tools.
        """
        async with self._learning:
            placed = await self._place_all(self._compiled)
            is_same = placed.held.keys() == self._held.keys() and await _are_same(placed.standings, self.standings)
            self._use(placed)
            if not is_same:
                self._on_change(self)

    async def _place_all(self, tools: Mapping[ToolName, HeldTool]) -> _Placed:
        """List the tools that keep their promises; one that does not is withheld, where that is enforced."""
        placed, slices = _Placed(), Slices()
        for name, tool in tools.items():
            standing = await self._promises.standing(self.name, tool.contract)
            if standing is not None:
                placed.standings[name] = standing
            if standing is not None and self._contracts == "enforce" and not standing.is_harmless:
                placed.withheld[name] = withheld(tool, standing, self._promises)
            else:
                placed.held[name] = tool
            await slices.give_way()
        return placed

    def _use(self, placed: _Placed) -> None:
        self._held, self._withheld, self.standings = placed.held, placed.withheld, placed.standings

    def _hold(self, definition: JsonObject, name: ToolName, build: str) -> HeldTool:
        try:
            contract = contract_of_upstream(
                definition,
                server=self.name,
                name=name,
                closes=self.spec.unknown_arguments == "reject",
                version=build,
                timeout_s=self.timeout_s,
            )
            mirrors = MirroredArguments(definition.get("inputSchema")) if self.spec.url is not None else None
        except ContractRefused:
            raise
        except BadAnnotation as error:
            raise self._refusal(definition, "inputSchema", str(error)) from error
        except Exception as error:
            # A schema may be strange in any way; the server's other tools are not.
            raise self._refusal(definition, "definition", str(error) or type(error).__name__) from error
        return HeldTool(
            contract=contract,
            source=self.name,
            invoke=self._invoker(contract.terms.name, mirrors or None),
            on_fault=self.supervisor.note_trouble,
            waits=True,
            ask_ahead=None if mirrors else self._asker(contract.terms.name),
            read=self._read,
        )

    def _refusal(self, definition: JsonObject, place: str, reason: str) -> ContractRefused:
        tool = str(definition.get("name"))[:128]
        message = f"server `{self.name}`, tool `{tool}`, {place}: {reason}"
        return ContractRefused(message, plugin=self.name, tool=tool, place=place, reason=reason)

    def _asker(self, tool: str) -> Callable[[JsonObject, Context], Sent | None]:
        head = _wish_head(tool)

        def ask_ahead(arguments: JsonObject, context: Context) -> Sent | None:
            meta, respondent = _passed_on(context), context.respondent
            wish = head + encode(arguments)
            return self.supervisor.send_ahead(
                "tools/call", wish, name=tool, meta=meta, respondent=respondent, caller=context.caller
            )

        return ask_ahead

    def _read(self, raw: bytes) -> ToolReturn:
        return ToolReturn(passed=_result_fields(raw, self.name), results=self.spec.results)

    def _invoker(
        self, tool: str, mirrors: MirroredArguments | None
    ) -> Callable[[JsonObject, Context], Awaitable[ToolReturn]]:
        head = _wish_head(tool)

        async def invoke(arguments: JsonObject, context: Context) -> ToolReturn:
            wish = head + encode(arguments)
            mirrored = mirrors.headers_for(arguments) if mirrors is not None else ()
            if context.resumption is not None:
                fields = await self._asked(tool, wish + resumption_fields(context.resumption), mirrored, context)
            else:
                fields = await self._asked(tool, wish, mirrored, context)
            if is_asking(fields):
                fields = await self._answered(tool, wish, mirrored, context, fields)
            return ToolReturn(passed=fields, results=self.spec.results)

        return invoke

    async def _asked(self, tool: str, wish: bytes, mirrored: Headers, context: Context) -> Mapping[str, msgspec.Raw]:
        # Used up by the first attempt: with answers to its questions a server is asked anew.
        sent, context.sent = context.sent, None
        try:
            raw = await self.supervisor.request(
                "tools/call",
                wish,
                key=routing_key(context.caller, context.meta) if self.spec.strategy == "per_session" else "",
                name=tool,
                mirrored=mirrored,
                meta=_passed_on(context),
                on_notice=_reporting_to(context),
                respondent=context.respondent,
                caller=context.caller,
                sent=sent,
            )
        except ServerRefused as refusal:
            raise UpstreamRefused(refusal.message, rpc_code=refusal.code, data=refusal.data) from refusal
        try:
            return _result_fields(raw, self.name)
        except UpstreamUnavailable as error:
            self.supervisor.note_trouble(error.message)
            raise

    async def _answered(
        self, tool: str, wish: bytes, mirrored: Headers, context: Context, fields: Mapping[str, msgspec.Raw]
    ) -> Mapping[str, msgspec.Raw]:
        """Get a server what it asks for; a client of its own era is asked by its own result."""
        respondent = context.respondent
        if respondent is None or not respondent.capabilities:
            raise _no_result(self.name, "a result of the kind input_required, which it was not asked for")
        if respondent.takes_rounds:
            check_asking(fields, respondent, self.name)
            return fields

        async def retry(resumption: Resumption) -> Mapping[str, msgspec.Raw]:
            return await self._asked(tool, wish + resumption_fields(resumption), mirrored, context)

        return await with_answers(fields, respondent, self.name, retry)


async def _are_same(one: Mapping[ToolName, Standing], other: Mapping[ToolName, Standing]) -> bool:
    return one.keys() == other.keys() and await are_same([*one.values()], [other[name] for name in one])


def _are_quick(definitions: list[JsonObject]) -> bool:
    left = QUICK_DEFINITIONS_BYTES
    for definition in definitions:
        left -= len(encode(definition))
        if left < 0:
            return False
    return True


def _wish_head(tool: str) -> bytes:
    return b'"name":%b,"arguments":' % encode(tool)


def _passed_on(context: Context) -> JsonObject:
    """Return what of a request's `_meta` is meant for whoever is behind us."""
    return {key: context.meta[key] for key in _PASSED_ON if key in context.meta}


def _is_named(definition: JsonObject) -> bool:
    name = definition.get("name")
    return isinstance(name, str) and bool(name)


def routing_key(caller: Caller, meta: JsonObject) -> str:
    """Say whose server of their own a call goes to: the caller's, and of a caller's those of one session or key."""
    facts = meta.get(META_KEY)
    chosen = facts.get("routingKey") if isinstance(facts, dict) else None
    # A tab marks the instance of another era (`MIRROR`), which is not the caller's to choose.
    return f"{caller.id}\n{chosen.replace(chr(9), ' ') if isinstance(chosen, str) else caller.session or ''}"


def _reporting_to(context: Context) -> Notice | None:
    if not context.wants_progress:
        return None

    relay = context.relay_progress
    return lambda _method, params: relay(partial(_read_progress, params))


def _read_progress(params: bytes) -> tuple[float | None, float | None, str | None] | None:
    try:
        note = _progress.decode(params)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return note.progress, note.total, note.message


def _result_fields(raw: bytes, server: str) -> dict[str, msgspec.Raw]:
    try:
        if len(raw) > STRAY_LIMIT_BYTES:
            _check_stray_fields(raw, server)
        fields = _fields.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_result(server, f"something that is no tool result: {error}") from error
    kind = bytes(fields.get("resultType", b'"complete"'))
    if kind == b'"input_required"':
        return fields
    if kind != b'"complete"':
        # It was not told that anybody here could do that.
        raise _no_result(
            server, f"a result of the kind {kind[:60].decode(errors='replace')}, which it was not asked for"
        )
    if bytes(memoryview(fields.get("content", b""))[:1]) != b"[":
        raise _no_result(server, "something that is no tool result: it has no content")
    return fields


def _check_stray_fields(raw: bytes, server: str) -> None:
    """Refuse a result that is made of fields nobody knows: they are passed on one by one, and there may be a million."""
    known = msgspec.structs.astuple(_known_fields.decode(raw))
    if len(raw) - sum(len(memoryview(field)) for field in known) > STRAY_LIMIT_BYTES:
        raise _no_result(server, f"a result with more than {STRAY_LIMIT_BYTES} bytes beside its content")


def _no_result(server: str, what: str) -> UpstreamUnavailable:
    return UpstreamUnavailable(
        f"The server `{server}` answered with {what}", hint="the server is at fault, not the call", server=server
    )
