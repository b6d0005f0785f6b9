"""The tools of a server: definitions are compiled to contracts, calls sent to the server, and its results passed on unchanged.

A server decides what it sends, and how much. Definitions are compiled in a thread if they are large and compared with their lock
or pin in slices of time; results are parsed only as far as needed to pass their fields on. Processes and connections are left to
`upstreams`.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import anyio
import msgspec
from anyio import to_thread

from toolpost.authoring.context import Context
from toolpost.base.caller import Caller, owner_of
from toolpost.base.events import event
from toolpost.base.ids import META_KEY, Digest, JsonObject, PluginName, ToolName
from toolpost.base.log_limit import TOOL_LINES, LogLimit
from toolpost.contracts import Definition, quick_digest
from toolpost.contracts.compatibility.definition import define_instructions, is_skill_name, name_instructions
from toolpost.contracts.contract import Contract, KnownLimits, check_plugin_name, contract_of_upstream
from toolpost.contracts.errors import ContractRefused, LoginRequired, NotFound, UpstreamRefused, UpstreamUnavailable
from toolpost.contracts.findings import DefinitionScan, scan_definition
from toolpost.contracts.names import tool_names
from toolpost.protocol.extensions import declares_extensions
from toolpost.protocol.mirrored import BadAnnotation, Headers, MirroredArguments
from toolpost.protocol.rpc import Resumption
from toolpost.providers.client_meta import select_meta
from toolpost.providers.contract_watch import ContractStatus, Mode
from toolpost.providers.input_required import (
    answer_input_requests,
    is_input_required,
    parse_input_requests,
    write_resumption,
)
from toolpost.providers.quarantine import (
    JUDGE_WAIT_S,
    CheckedText,
    SortedTools,
    check_text,
    log_quarantined,
    sort_tools,
)
from toolpost.providers.server_context import ServerContext
from toolpost.providers.skills import ListedSkills
from toolpost.providers.tool import FastRequest, ProvidedTool, RawResult
from toolpost.upstreams.lists import Slices, are_same
from toolpost.upstreams.notifications import PROMPTS_CHANGED, RESOURCES_CHANGED, Notification
from toolpost.upstreams.pool import InstancePool
from toolpost.upstreams.report import UNKNOWN_PROFILE, ServerProfile, ServerReport, ServerState
from toolpost.upstreams.server_requests import ClientChannel, WithoutExtensions, with_sampling
from toolpost.upstreams.spec import ServerSpec
from toolpost.upstreams.supervisor import Supervisor
from toolpost.upstreams.transport import ProgressListener, SentRequest, ServerRefused, UpstreamRequest, encode

if TYPE_CHECKING:
    from toolpost.providers.caller_providers import CallerProviders

_log = logging.getLogger("toolpost.providers")

STRAY_LIMIT_BYTES = 64 * 1024
"""How many bytes a result may have besides its content and its requests for input: `_meta`, and unknown fields."""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _ProgressParams(msgspec.Struct):
    progress: int | float | None = None
    total: int | float | None = None
    message: str | None = None


class _KnownFields(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"")
    structuredContent: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815 (as on the wire)
    inputRequests: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    requestState: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


_progress = msgspec.json.Decoder(_ProgressParams)
_known_fields = msgspec.json.Decoder(_KnownFields)


_STATES = (
    *(ServerState.BUSY, ServerState.READY, ServerState.STARTING, ServerState.DRAINING),
    *(ServerState.SUSPENDED, ServerState.FAILED, ServerState.STOPPED),
)

SEEN_S = 3_600.0
"""How often the definitions of a server that runs are stored again; after a day without, they are forgotten."""

QUICK_DEFINITIONS_BYTES = 32 * 1024
"""Definitions up to this size are compiled on the event loop, in 20 ms at worst; larger ones are compiled in a thread."""


class PreparedTools(NamedTuple):
    """The definitions of a server, compiled."""

    tools: dict[ToolName, ProvidedTool]
    refused: list[ContractRefused]


@dataclass(frozen=True, kw_only=True)
class CheckedInstructions(CheckedText):
    """The instructions of a server that clients may be shown, and the reasons to look at those that it has."""

    shown: str = ""
    """Empty if it has none, or if they are quarantined."""


class ServerProvider:
    """The tools of one server."""

    def __init__(
        self,
        spec: ServerSpec,
        context: ServerContext,
        *,
        successor_of: "ServerProvider | None" = None,
        base: "ServerProvider | None" = None,
    ) -> None:
        """Take a specification; with `successor_of`, share the supervisor of a provider whose server is reached in the same way.

        `base` is the provider of the same server for the empty owner, if this one is for another.
        """
        self.name: PluginName = check_plugin_name(spec.name)
        self.spec = spec
        self.supervisor: Supervisor = (
            successor_of.supervisor
            if successor_of
            else Supervisor(
                spec,
                context.limits,
                on_tools=self._learn_own,
                on_notification=context.servers.on_notification,
                add_owner_values=context.access.add_owner_values,
                sibling_pools=self._find_pools(base),
                server_tokens=context.access.server_tokens,
            )
        )
        self.by_owner: CallerProviders | None = base.by_owner if base is not None else None
        """The providers of all owners, where callers have credentials of their own; else None."""
        self._base = base
        self.has_own_definitions = False
        """Whether the definitions were listed by the server itself, with the credentials of this owner."""
        self.definitions: list[JsonObject] | None = None
        """The server's definitions, unchanged; None until they are known."""
        self.build = ""
        """The server's own version."""
        self.profile = UNKNOWN_PROFILE
        """What else the server says about itself."""
        self.timeout_s = spec.timeout_s or context.default_timeout_s
        self._sampler = context.servers.sampler
        self._logins = context.logins
        self._listeners = context.tools
        self._on_notification = context.servers.on_notification
        self._missing: set[str] = set()
        """The notifications that follow once the server has started: lists of clients lack what it has."""
        self._watch = context.watch
        self._contracts: Mode = spec.contracts or context.watch.mode
        self._enforces = self._contracts == "enforce"
        self._is_live = False
        """Whether the definitions may be listed without another look at the server; False for those of an earlier start."""
        self._compiled: dict[ToolName, ProvidedTool] = {}
        self._sorted = SortedTools()
        self.instructions = CheckedInstructions()
        self.skills = ListedSkills(self.name, self.pin_name, self._watch, self._contracts)
        self._statuses: Mapping[ToolName, ContractStatus] = {}
        self._scanned: DefinitionScan | None = None
        self._scanned_text = ""
        self._refused: list[ContractRefused] = []
        self._refused_lines = LogLimit(lines=TOOL_LINES)
        self._seen_at = -math.inf
        """When its definitions were last to be stored, on the monotonic clock."""
        self.learned_many_at = -math.inf
        """When it last got a long list, on the monotonic clock."""
        self._learning: anyio.Lock = successor_of._learning if successor_of else anyio.Lock()  # noqa: SLF001 (of its own kind)

    def _find_pools(self, base: "ServerProvider | None") -> set[InstancePool] | None:
        """Return the set of the pools of all owners; None where callers share their credentials."""
        if self.spec.credentials == "shared":
            return None
        self._pools: set[InstancePool] = base._pools if base is not None else set()  # noqa: SLF001 (of its own kind)
        return self._pools

    @property
    def owner(self) -> str:
        return self.spec.owner

    @property
    def all_owners(self) -> "list[ServerProvider]":
        """The providers of all owners, where callers have credentials of their own; else itself alone."""
        return [self] if self.by_owner is None else list(self.by_owner)

    @property
    def supervisors(self) -> list[Supervisor]:
        """Its supervisor; where callers have credentials of their own, those of all owners."""
        return [one.supervisor for one in self.all_owners]

    @property
    def state(self) -> ServerState:
        """The state of the server; where each owner has one of its own, that of the busiest."""
        return min((supervisor.state for supervisor in self.supervisors), key=_STATES.index)

    def report(self) -> ServerReport:
        """Report the state of the server, for all owners together. Reads the memory of all its processes."""
        reports = [supervisor.report() for supervisor in self.supervisors]
        first, *others = sorted(reports, key=lambda report: report.last_error_at or 0.0, reverse=True)
        if not others:
            return replace(first, degraded=self.degraded)
        memory = [report.memory_bytes for report in reports if report.memory_bytes is not None]
        return replace(
            first,
            state=self.state,
            version=next((report.version for report in reports if report.version is not None), None),
            pids=tuple(pid for report in reports for pid in report.pids),
            memory_bytes=sum(memory) if memory else None,
            in_flight=sum(report.in_flight for report in reports),
            restarts=sum(report.restarts for report in reports),
            protocol_errors=sum(report.protocol_errors for report in reports),
            losses=tuple(sorted(moment for report in reports for moment in report.losses)),
            degraded=self.degraded,
        )

    @property
    def degraded(self) -> str | None:
        """Why some of its tools are left out, for all owners together; None if none are, or were within the last hour."""
        problems = (self._watch.find_problem(one.pin_name) for one in self.all_owners)
        return next((problem for problem in problems if problem is not None), None)

    @property
    def description(self) -> str:
        """The server's title, description and instructions: indexed to find its tools by, and never shown."""
        return self.profile.description

    @property
    def pin_name(self) -> PluginName:
        """Under which its tools are pinned: each owner may be listed other tools."""
        return PluginName(f"{self.name}/{self.owner}") if self.owner else self.name

    @property
    def contracts(self) -> list[Contract]:
        """The contracts of all tools, also of quarantined ones."""
        return [tool.contract for tool in self._compiled.values()]

    @property
    def is_unchecked(self) -> bool:
        """Whether its tools may not be listed yet: with `enforce`, before the server has listed them since the start."""
        return self._enforces and not self._is_live

    @property
    def is_complete(self) -> bool:
        """Whether the server has listed its tools, to its owner if it has one."""
        return self.definitions is not None and not self.is_unchecked and (not self.owner or self.has_own_definitions)

    @property
    def tools(self) -> Mapping[ToolName, ProvidedTool]:
        return {} if self.is_unchecked else self._sorted.served

    @property
    def quarantined(self) -> Mapping[ToolName, ProvidedTool]:
        """Tools that are not listed. One that is only unchecked is compared by its first call, and runs if it is unchanged."""
        return {**self._sorted.served, **self._sorted.quarantined} if self.is_unchecked else self._sorted.quarantined

    @property
    def statuses(self) -> Mapping[ToolName, ContractStatus]:
        """The tools, and perhaps instructions and skills, that differ from their lock or pin."""
        return {**self._statuses, **skills} if (skills := self.skills.statuses) else self._statuses

    @property
    def refused(self) -> Sequence[ContractRefused]:
        return self._refused

    def show_remembered(self) -> None:
        """List the tools of an earlier start, of a server that lists none before a login: a call asks for that.

        They are as they were locked or pinned; what the server has by then is compared before a call is sent.
        """
        if self.definitions is not None and not self._is_live:
            self._is_live = True
            self._listeners.on_change(self)

    async def copy_definitions(self, other: "ServerProvider") -> None:
        """Copy what another provider of the same server knows, after any `learn` in progress; newer definitions are kept."""
        before = self.definitions
        async with self._learning:
            pass
        if other.definitions is not None and self.definitions is before:
            is_live = other._is_live  # noqa: SLF001 (of its own kind)
            await self.learn(other.definitions, other.build, other.profile, is_live=is_live)

    async def _learn_own(
        self, definitions: list[JsonObject], build: str, profile: ServerProfile = UNKNOWN_PROFILE
    ) -> None:
        self.has_own_definitions = True
        await self.learn(definitions, build, profile)

    async def learn(
        self,
        definitions: list[JsonObject],
        build: str,
        profile: ServerProfile = UNKNOWN_PROFILE,
        *,
        is_live: bool = True,
        known: Mapping[Digest, KnownLimits] = MappingProxyType({}),
    ) -> None:
        """Take the server's definitions, version and profile; unchanged tools are not compiled again.

        Definitions that an earlier start has compiled are in `known`, by their digests.

        Calls use the previous tools until all new ones are ready; then all are replaced together. Two instances of a server may
        list their tools at once; the later one waits. `is_live` is False for those of an earlier start.
        """
        async with self._learning:
            was_unchecked = self.is_unchecked
            has_new_description, before, self.profile = profile.description != self.description, self.profile, profile
            if build == self.build and await are_same(definitions, self.definitions):
                was_sorted = self._sorted
                if profile.instructions != before.instructions or self._sorted.left_out:
                    self._use(*await self._sort(self._compiled))
                self._is_live = self._is_live or is_live
                self._note_seen(is_live=is_live)
                if (was_unchecked and not self.is_unchecked) or not await self._sorted.is_like(was_sorted):
                    self._listeners.on_change(self)
                elif has_new_description:
                    self._listeners.on_described()
                return
            if _is_quick(definitions):
                prepared = self._prepare(definitions, build, known)
            else:
                self.learned_many_at = time.monotonic()
                prepared = await to_thread.run_sync(self._prepare, definitions, build, known, abandon_on_cancel=True)
            sorted_tools, instructions = await self._sort(prepared.tools)
            slices = Slices()
            for refusal in prepared.refused:
                if count := self._refused_lines.take():
                    tools = count if count > 1 else None
                    event(_log, logging.WARNING, "tool refused", server=self.name, reason=refusal.message, tools=tools)
                await slices.give_way()
            self.definitions, self.build = definitions, build
            self._compiled, self._refused = prepared.tools, prepared.refused
            self._use(sorted_tools, instructions)
            self._is_live = self._is_live or is_live
            self._seen_at = -math.inf
            self._note_seen(is_live=is_live)
            self._listeners.on_change(self)

    def _note_seen(self, *, is_live: bool) -> None:
        """Have the definitions stored, so that they are known at the next start; of the same ones, now and then is enough."""
        if is_live:
            self._announce_missing()
        if is_live and time.monotonic() - self._seen_at >= SEEN_S:
            self._seen_at = time.monotonic()
            self._listeners.on_seen(self)

    def note_missing(self, method: str) -> None:
        """Note that a client got a list without what this server has; once the server has started, clients are notified."""
        self._missing.add(PROMPTS_CHANGED if method == "prompts/list" else RESOURCES_CHANGED)

    def _announce_missing(self) -> None:
        missing, self._missing = self._missing, set()
        owner = None if self.by_owner is None else self.owner
        for method in sorted(missing):
            self._on_notification(Notification(server=self.name, key="", method=method, params=b"{}", owner=owner))

    def _find_compiled(self, build: str) -> dict[str, tuple[JsonObject, ProvidedTool]]:
        """Return compiled tools and their definitions, by the server's own names."""
        # A contract contains the build, so that another build makes all of them new.
        if build != self.build:
            return {}
        definitions = {str(d.get("name")): d for d in self.definitions or ()}
        by_own_name = {tool.contract.terms.name: tool for tool in self._compiled.values()}
        return {name: (definitions[name], tool) for name, tool in by_own_name.items() if name in definitions}

    def find_limits(self) -> dict[Digest, KnownLimits]:
        """Return what the next start needs to know of compiled definitions, by their digests. Takes a moment for thousands."""
        return {quick_digest(d): tool.contract.limits for d, tool in self._find_compiled(self.build).values()}

    def _prepare(self, definitions: list[JsonObject], build: str, known: Mapping[Digest, KnownLimits]) -> PreparedTools:
        earlier = self._find_compiled(build)
        # Owners are usually listed the same tools: schemas are compiled once for all of them.
        of_base = self._base._find_compiled(build) if self._base is not None else {}  # noqa: SLF001 (of its own kind)
        names = tool_names(self.name, [d["name"] for d in definitions if _has_name(d)])
        prepared = PreparedTools({}, [])
        for definition in definitions:
            if not _has_name(definition):
                prepared.refused.append(self._refusal(definition, "name", "a tool must have a name"))
                continue
            tool: str = definition["name"]
            name = names[tool]
            if not self.spec.admits(tool) or name in prepared.tools:
                continue
            before, known_tool = earlier.get(tool, (None, None))
            if known_tool is not None and before == definition and known_tool.contract.name == name:
                prepared.tools[name] = known_tool
                continue
            try:
                before, known_tool = of_base.get(tool, (None, None))
                is_same = known_tool is not None and before == definition and known_tool.contract.name == name
                compiled = known_tool.contract if known_tool is not None and is_same else None
                limits = known.get(quick_digest(definition)) if known else None
                prepared.tools[name] = self._make_tool(definition, name, build, compiled, limits)
            except ContractRefused as refusal:
                prepared.refused.append(refusal)
        return prepared

    async def recheck(self) -> None:
        """Compare all tools with their lock or pin again, after a judgement or a change of the lock."""
        # Under the lock of `learn`: both replace the same tools.
        async with self._learning:
            sorted_tools, instructions = await self._sort(self._compiled)
            await self.skills.recheck()
            # Other instructions are no other tools: clients are not notified of those.
            is_same = await sorted_tools.is_like(self._sorted)
            self._use(sorted_tools, instructions)
            if not is_same:
                self._listeners.on_change(self)

    async def _sort(self, tools: Mapping[ToolName, ProvidedTool]) -> tuple[SortedTools, CheckedInstructions]:
        found = await sort_tools(tools, self._watch, self.pin_name, self._contracts)
        return found, await self._check_instructions()

    async def _check_instructions(self) -> CheckedInstructions:
        """Compare the server's instructions with their lock or pin, and scan them."""
        text = self.profile.instructions
        if not text:
            return CheckedInstructions()
        definition = define_instructions(self.name, text)
        if self._scanned is None or text != self._scanned_text:
            # In a thread: a server decides how long its instructions are.
            self._scanned = await to_thread.run_sync(scan_definition, definition)
            self._scanned_text = text
        found = await check_text(definition, self._scanned, self._watch, self.pin_name, self._contracts)
        if found.findings and found.is_quarantined and self.instructions.findings != found.findings:
            log_quarantined("instructions are", self.name, definition, found.findings)
        return CheckedInstructions(shown="" if found.is_quarantined else text, **vars(found))

    def is_quarantined(self, name: ToolName) -> bool:
        """Whether a tool, or what `name_instructions` or `name_skill` names, is quarantined."""
        if name == name_instructions(self.name):
            return self.instructions.is_quarantined
        if is_skill_name(name):
            return self.skills.is_quarantined(name)
        return name in self._sorted.quarantined

    def define(self, name: ToolName) -> Definition:
        """Return the definition of a tool, of the instructions or of a skill as it is now; raise `KeyError` if there is none."""
        if name == name_instructions(self.name):
            return define_instructions(self.name, self.profile.instructions)
        if is_skill_name(name):
            return self.skills.definitions[name]
        return Definition.from_contract(self._compiled[name].contract)

    def _use(self, sorted_tools: SortedTools, instructions: CheckedInstructions) -> None:
        self._sorted, self.instructions, self._statuses = sorted_tools, instructions, sorted_tools.statuses
        if instructions.status is not None:
            self._statuses = {**self._statuses, name_instructions(self.name): instructions.status}

    def _make_tool(
        self,
        definition: JsonObject,
        name: ToolName,
        build: str,
        compiled: Contract | None = None,
        limits: KnownLimits | None = None,
    ) -> ProvidedTool:
        """Compile a definition, unless it has been: to `compiled`, or, at an earlier start, with these `limits`."""
        try:
            contract = compiled or contract_of_upstream(
                definition,
                server=self.name,
                name=name,
                closes=self.spec.unknown_arguments == "reject",
                version=build,
                timeout_s=self.timeout_s,
                known=limits,
            )
            mirrors = MirroredArguments(definition.get("inputSchema")) if self.spec.url is not None else None
        except ContractRefused:
            raise
        except BadAnnotation as error:
            raise self._refusal(definition, "inputSchema", str(error)) from error
        except Exception as error:
            # A broken schema can raise anything, and must not take the server's other tools with it.
            raise self._refusal(definition, "definition", str(error) or type(error).__name__) from error
        request = self._make_request(contract.terms.name, mirrors or None)
        return ProvidedTool(
            contract=contract,
            provider=self.name,
            invoke=partial(request, None),
            on_failure=self.supervisor.note_failure,
            owner=self.owner,
            is_remote=True,
            fast_request=None
            if mirrors
            else FastRequest(send=self._make_send(contract.terms.name, name), read=self._read, finish=request),
        )

    def _refusal(self, definition: JsonObject, place: str, reason: str) -> ContractRefused:
        tool = str(definition.get("name"))[:128]
        message = f"server `{self.name}`, tool `{tool}`, {place}: {reason}"
        return ContractRefused(message, plugin=self.name, tool=tool, place=place, reason=reason)

    def _make_send(self, tool: str, name: ToolName) -> Callable[[JsonObject, Context], SentRequest | None]:
        head = _write_params_head(tool)

        def send(arguments: JsonObject, context: Context) -> SentRequest | None:
            if self._enforces and (self.supervisor.is_overdue or name in self._sorted.quarantined):
                return None
            if self.by_owner is not None and owner_of(context.caller) != self.owner:
                return None
            meta = select_meta(context.meta, self.spec)
            client_channel = self.channel_of(context.client_channel, context.caller)
            params = head + encode(arguments)
            return self.supervisor.try_send(
                UpstreamRequest("tools/call", params, meta, tool, client_channel=client_channel, caller=context.caller)
            )

        return send

    def channel_of(self, channel: ClientChannel | None, caller: Caller) -> ClientChannel | None:
        """Return what takes the server's own requests: the client's channel, on which sampling may be answered here."""
        if not self.spec.extensions and channel is not None and declares_extensions(channel.capabilities):
            channel = WithoutExtensions(channel)
        return channel if self._sampler is None else with_sampling(channel, caller, self._sampler)

    def _read(self, raw: bytes) -> RawResult:
        return RawResult(upstream_fields=_parse_result(raw, self.name), results=self.spec.results)

    async def _check_quarantine(self, tool: str, context: Context) -> None:
        """Raise if a tool is quarantined by now, or was not compared with its lock or pin for longer than `relist_s`.

        The call has found the tool before its server was ready: one that has just started may have listed another.
        """
        if self.supervisor.is_overdue:
            # It ends before the call's own deadline does: an error that says why is better than a timeout.
            await self.supervisor.list_again(limit_s=0.9 * self.timeout_s)
        if self._find_quarantined(tool) is not None:
            await self._watch.settle(JUDGE_WAIT_S)
        if (quarantined := self._find_quarantined(tool)) is not None:
            await quarantined.invoke({}, context)  # raises what changed

    def _find_quarantined(self, tool: str) -> ProvidedTool | None:
        return next((one for one in self._sorted.quarantined.values() if one.contract.terms.name == tool), None)

    def _make_request(
        self, tool: str, mirrors: MirroredArguments | None
    ) -> Callable[[SentRequest | None, JsonObject, Context], Awaitable[RawResult]]:
        head = _write_params_head(tool)

        async def request(sent: SentRequest | None, arguments: JsonObject, context: Context) -> RawResult:
            if self.by_owner is not None and owner_of(context.caller) != self.owner:
                # The caller found this tool where it did not say who it is: it is run with the caller's credentials all the same.
                return await _request_as_owner(self.by_owner, tool, arguments, context)
            params = head + encode(arguments)
            mirrored = mirrors.headers_for(arguments) if mirrors is not None else ()
            if context.resumption is not None:
                fields = await self._request(tool, params + write_resumption(context.resumption), mirrored, context)
            else:
                fields = await self._request(tool, params, mirrored, context, sent)
            if is_input_required(fields):
                fields = await self._answer_input_required(tool, params, mirrored, context, fields)
            return RawResult(upstream_fields=fields, results=self.spec.results)

        return request

    def add_login_url(self, required: LoginRequired, caller: Caller) -> LoginRequired:
        """Return the error with the address at which this caller can log in, if there is one."""
        return self._logins.add_url(required, self.name, caller)

    async def _request(
        self, tool: str, params: bytes, mirrored: Headers, context: Context, sent: SentRequest | None = None
    ) -> Mapping[str, msgspec.Raw]:
        request = partial(
            self.supervisor.request,
            UpstreamRequest(
                "tools/call",
                params,
                meta=select_meta(context.meta, self.spec),
                name=tool,
                mirrored=mirrored,
                on_progress=_make_progress_listener(context),
                client_channel=self.channel_of(context.client_channel, context.caller),
                caller=context.caller,
            ),
            key=routing_key(context.caller, context.meta) if self.spec.strategy == "per_session" else "",
            check=partial(self._check_quarantine, tool, context) if self._enforces else None,
        )
        began_at = time.monotonic()
        try:
            try:
                raw = await request(sent=sent)
            except LoginRequired as required:
                # It ends before the call's own deadline does: an error that says what to do is better than a timeout.
                limit_s = 0.95 * self.timeout_s - (time.monotonic() - began_at)
                await self._logins.wait_for_login(
                    required, self.spec, context.caller, context.client_channel, limit_s=limit_s
                )
                raw = await request(sent=None)
        except ServerRefused as refusal:
            raise UpstreamRefused(refusal.message, rpc_code=refusal.code, data=refusal.data) from refusal
        try:
            return _parse_result(raw, self.name)
        except UpstreamUnavailable as error:
            self.supervisor.note_failure(error.message)
            raise

    async def _answer_input_required(
        self, tool: str, params: bytes, mirrored: Headers, context: Context, fields: Mapping[str, msgspec.Raw]
    ) -> Mapping[str, msgspec.Raw]:
        """Answer the requests in a result, unless the client takes such results itself."""
        client_channel = self.channel_of(context.client_channel, context.caller)
        if client_channel is None or not client_channel.capabilities:
            raise _make_result_error(self.name, "a result of the kind input_required, which it was not asked for")
        if client_channel.takes_input_required:
            parse_input_requests(fields, client_channel, self.name)
            return fields

        async def retry(resumption: Resumption) -> Mapping[str, msgspec.Raw]:
            return await self._request(tool, params + write_resumption(resumption), mirrored, context)

        return await answer_input_requests(fields, client_channel, self.name, retry)


async def _request_as_owner(
    by_owner: "CallerProviders", tool: str, arguments: JsonObject, context: Context
) -> RawResult:
    provider = await by_owner.of(owner_of(context.caller))
    for found in (*provider.tools.values(), *provider.quarantined.values()):
        if found.contract.terms.name == tool:
            return await found.invoke(arguments, context)
    raise NotFound(f"The server `{provider.name}` lists no tool `{tool}` for you.", hint="list the tools again")


def _is_quick(definitions: list[JsonObject]) -> bool:
    left = QUICK_DEFINITIONS_BYTES
    for definition in definitions:
        left -= len(encode(definition))
        if left < 0:
            return False
    return True


def _write_params_head(tool: str) -> bytes:
    return b'"name":%b,"arguments":' % encode(tool)


def _has_name(definition: JsonObject) -> bool:
    name = definition.get("name")
    return isinstance(name, str) and bool(name)


def routing_key(caller: Caller, meta: JsonObject) -> str:
    """Make the key of an instance for `per_session`: the caller, and its session or the `routingKey` that it chose."""
    facts = meta.get(META_KEY)
    chosen = facts.get("routingKey") if isinstance(facts, dict) else None
    # A tab begins `HANDSHAKE_SUFFIX`, which a caller must not be able to choose.
    return f"{caller.id}\n{chosen.replace(chr(9), ' ') if isinstance(chosen, str) else caller.session or ''}"


def _make_progress_listener(context: Context) -> ProgressListener | None:
    if not context.wants_progress:
        return None

    relay = context.relay_progress
    return lambda _method, params: relay(partial(_parse_progress, params))


def _parse_progress(params: bytes) -> tuple[float | None, float | None, str | None] | None:
    try:
        note = _progress.decode(params)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return note.progress, note.total, note.message


def _parse_result(raw: bytes, server: str) -> dict[str, msgspec.Raw]:
    try:
        if len(raw) > STRAY_LIMIT_BYTES:
            _check_stray_fields(raw, server)
        fields = _fields.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _make_result_error(server, f"something that is no tool result: {error}") from error
    kind = bytes(fields.get("resultType", b'"complete"'))
    if kind == b'"input_required"':
        return fields
    if kind != b'"complete"':
        # No capability for other kinds of results was declared.
        raise _make_result_error(
            server, f"a result of the kind {kind[:60].decode(errors='replace')}, which it was not asked for"
        )
    if bytes(memoryview(fields.get("content", b""))[:1]) != b"[":
        raise _make_result_error(server, "something that is no tool result: it has no content")
    return fields


def _check_stray_fields(raw: bytes, server: str) -> None:
    """Refuse a result with too many unknown fields: they are passed on one by one, and there may be a million."""
    known = msgspec.structs.astuple(_known_fields.decode(raw))
    if len(raw) - sum(len(memoryview(field)) for field in known) > STRAY_LIMIT_BYTES:
        raise _make_result_error(server, f"a result with more than {STRAY_LIMIT_BYTES} bytes beside its content")


def _make_result_error(server: str, what: str) -> UpstreamUnavailable:
    return UpstreamUnavailable(
        f"The server `{server}` answered with {what}",
        hint="this is an error of the server, not of the call",
        server=server,
    )
