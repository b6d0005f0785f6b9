"""Resources, prompts and completions of a plugin, for the relay: it asks them of a plugin as it asks them of a server.

A function runs as a tool's does: asynchronous on the event loop, synchronous in a thread, within its time limit, and with a
`Context` that reaches the client. Its exceptions become protocol errors, because these methods have no other.
"""

import inspect
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from anyio import CapacityLimiter, to_thread

from toolpost.authoring.context import Context, PluginServices
from toolpost.authoring.resource import COMPLETIONS_LIMIT, Completer, Prompt, Resource
from toolpost.authoring.skill import Skill, SkillFile
from toolpost.authoring.tool import Tool
from toolpost.base import event, nearest_name
from toolpost.base.ids import JsonObject, ToolName, new_call_id
from toolpost.contracts.errors import CallerError, ClientCannotAnswer, ToolFailed, ToolpostError
from toolpost.fairness import FairQueue
from toolpost.protocol.era import MISSING_CAPABILITY
from toolpost.protocol.era import has_stateless_envelope as is_stateless
from toolpost.protocol.rpc import ProtocolError, Resumption
from toolpost.providers.requester import Requester
from toolpost.providers.unknown_name import UnknownName
from toolpost.upstreams.transport import ServerRefused

_log = logging.getLogger("toolpost.plugins")

INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
METHOD_NOT_FOUND: Final = -32601

_LISTS: Final = {
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


class PluginContents:
    """Resources, prompts and skills of one plugin."""

    by_owner = None
    """Credentials per caller are a matter of servers."""

    def __init__(
        self,
        name: str,
        *,
        resources: Iterable[Resource] = (),
        prompts: Iterable[Prompt] = (),
        services: PluginServices,
        default_timeout_s: float,
        threads: FairQueue | None = None,
        has_logging: bool = False,
        is_bare: bool = False,
    ) -> None:
        """`has_logging` says that its tools may log to clients; with `is_bare`, the names of prompts have no prefix."""
        self.name = name
        self.is_bare = is_bare
        self.tags = services.tags
        self.default_timeout_s = default_timeout_s
        self._services = services
        self._threads = threads
        self._limiter = CapacityLimiter(math.inf)
        self._has_logging = has_logging
        self._resources: tuple[Resource, ...] = ()
        self._prompts: dict[str, Prompt] = {}
        self.replace(resources, prompts)

    def replace(self, resources: Iterable[Resource], prompts: Iterable[Prompt]) -> None:
        """Offer these from now on; of two with one URI or name, the first."""
        self._resources = tuple({resource.uri: resource for resource in reversed(list(resources))}.values())[::-1]
        self._prompts = {prompt.name: prompt for prompt in reversed(list(prompts))}
        self._prompts = dict(reversed(self._prompts.items()))

    @property
    def counts(self) -> tuple[int, int]:
        """How many resources and prompts there are."""
        return len(self._resources), len(self._prompts)

    @property
    def capabilities(self) -> JsonObject:
        """What it offers, as a server would declare it; empty if it has nothing but tools that never log."""
        items: Sequence[Resource | Prompt] = (*self._resources, *self._prompts.values())
        offered = {
            "resources": bool(self._resources),
            "prompts": bool(self._prompts),
            "completions": any(item.has_completions for item in items),
            "logging": self._has_logging or any(item.context_name is not None for item in items),
        }
        return {capability: {} for capability, is_offered in offered.items() if is_offered}

    @property
    def timeout_s(self) -> float:
        """The longest time limit of what it offers."""
        limits = [item.timeout_s for item in (*self._resources, *self._prompts.values()) if item.timeout_s]
        return max([self.default_timeout_s, *limits])

    @property
    def skills(self) -> dict[str, Skill]:
        """Its agent skills, by the URI of their `SKILL.md`."""
        files = (one for one in self._resources if isinstance(one, SkillFile))
        return {file.uri: file.skill for file in files if file.uri == file.skill.uri}

    async def describe_skill(self, skill: Skill, requester: Requester) -> JsonObject:
        """Return the entry of a skill; reads its files in a thread. Raises `ServerRefused` if they cannot be read."""
        try:
            described: JsonObject = await self._run_in_thread(skill.describe, requester)
        except (OSError, TypeError, ValueError) as error:
            event(_log, logging.WARNING, "skill not readable", plugin=self.name, skill=skill.uri, reason=str(error))
            raise ServerRefused(INTERNAL_ERROR, f"The skill {skill.uri} cannot be read") from error
        return described

    @property
    def prompt_names(self) -> Collection[str]:
        return self._prompts.keys()

    def has_resource(self, uri: str) -> bool:
        """Whether a URI is one of its resources, or matches one of its templates, or is one of them."""
        return self._find(uri) is not None or any(resource.uri == uri for resource in self._resources)

    def _find(self, uri: str) -> tuple[Resource, dict[str, str]] | None:
        # A URI of its own comes before any template that would match it too.
        for resource in sorted(self._resources, key=lambda one: one.template is not None):
            if (values := resource.match(uri)) is not None:
                return resource, values
        return None

    async def answer(self, method: str, params: JsonObject, requester: Requester) -> JsonObject:
        """Answer a request as a server would; raise `ServerRefused` for what is not there, and what a function raises."""
        if (field := _LISTS.get(method)) is not None:
            return {field: self._list(method)}
        if method == "resources/read":
            return await self._read(str(params.get("uri")), params, requester)
        if method == "prompts/get":
            return await self._get_prompt(str(params.get("name")), params, requester)
        if method == "completion/complete":
            return await self._complete(params, requester)
        raise ServerRefused(METHOD_NOT_FOUND, f"{method} is not offered by the plugin `{self.name}`")

    def _list(self, method: str) -> list[JsonObject]:
        if method == "prompts/list":
            return [prompt.definition for prompt in self._prompts.values()]
        is_template = method == "resources/templates/list"
        return [one.definition for one in self._resources if (one.template is not None) is is_template]

    async def _read(self, uri: str, params: JsonObject, requester: Requester) -> JsonObject:
        if (found := self._find(uri)) is None:
            message = f"No resource has the URI {uri[:200]}"
            raise UnknownName("resource", uri, INVALID_PARAMS, message, {"uri": uri[:200]})
        resource, values = found
        write = partial(resource.write, uri)
        return {"contents": await self._run(resource, "resources/read", values, params, requester, write)}

    async def _get_prompt(self, name: str, params: JsonObject, requester: Requester) -> JsonObject:
        prompt, arguments = self._find_prompt(name), params.get("arguments")
        given = {str(key): str(value) for key, value in arguments.items()} if isinstance(arguments, dict) else {}
        result: JsonObject = await self._run(prompt, "prompts/get", given, params, requester, prompt.write)
        return result

    def _find_prompt(self, name: str) -> Prompt:
        if (prompt := self._prompts.get(name)) is None:
            near = nearest_name(name, self._prompts)
            hint = f"; did you mean `{self.name}__{near}`?" if near else ""
            raise UnknownName("prompt", name, INVALID_PARAMS, f"Unknown prompt `{name[:128]}`{hint}")
        return prompt

    async def _run(
        self,
        item: Resource | Prompt,
        method: str,
        given: Mapping[str, str],
        params: JsonObject,
        requester: Requester,
        write: Callable[[Any], Any],
    ) -> Any:
        """Run the function, and return what `write` makes of its value: in a thread if it runs in one, to read files there."""
        responses = params.get("inputResponses")
        context = Context(
            call_id=requester.call_id or new_call_id(),
            trace_id=None,
            caller=requester.caller,
            tool=ToolName(method),
            reporter=None,
            meta=requester.meta,
            client_channel=requester.client_channel,
            resumption=Resumption(responses=dict(responses), state=None) if isinstance(responses, dict) else None,
            pause=None if requester.operation is None else requester.operation.pause_deadline,
        )
        context.services = self._services
        if requester.operation is not None:
            requester.operation.enter(self.name, limit_s=item.timeout_s or self.default_timeout_s)
        with _Refusals(self.name, item.name, requester):
            arguments = item.bind(given, context)
            if item.is_async:
                return write(await item.function(**arguments))
            return await self._run_in_thread(lambda: write(item.function(**arguments)), requester)

    async def _run_in_thread(self, function: Callable[[], Any], requester: Requester) -> Any:
        if self._threads is not None:
            await self._threads.enter(requester.caller.id)
        try:
            # As for tools: a thread is abandoned at the deadline, and anyio's own limiter does not know callers.
            limiter = self._limiter if self._threads is not None else None
            return await to_thread.run_sync(function, abandon_on_cancel=True, limiter=limiter)
        finally:
            if self._threads is not None:
                self._threads.leave(requester.caller.id)

    async def _complete(self, params: JsonObject, requester: Requester) -> JsonObject:
        reference, argument = params.get("ref") or {}, params.get("argument") or {}
        item: Resource | Prompt | None
        if reference.get("type") == "ref/prompt":
            item = self._find_prompt(str(reference.get("name")))
        else:
            item = next((one for one in self._resources if one.uri == reference.get("uri")), None)
        name, typed = str(argument.get("name")), str(argument.get("value") or "")
        if item is None or name not in item.parameters:
            raise ServerRefused(INVALID_PARAMS, f"There is no argument `{name[:100]}` to complete")
        others = (params.get("context") or {}).get("arguments") or {}
        if (completer := item.completers.get(name)) is None:
            start = typed.lower()
            values = [choice for choice in item.parameters[name].choices if choice.lower().startswith(start)]
        else:
            with _Refusals(self.name, item.name, requester):
                values = [str(value) for value in await self._run_completer(completer, typed, others, requester)]
        shown = values[:COMPLETIONS_LIMIT]
        return {"completion": {"values": shown, "total": len(values), "hasMore": len(values) > len(shown)}}

    async def _run_completer(
        self, completer: Completer, typed: str, others: JsonObject, requester: Requester
    ) -> Sequence[str]:
        takes_others = len(inspect.signature(completer).parameters) > 1
        given = (typed, dict(others)) if takes_others else (typed,)
        found: Any = (
            await completer(*given)
            if inspect.iscoroutinefunction(completer)
            else await self._run_in_thread(lambda: completer(*given), requester)
        )
        return list(found)


def takes_contexts(tools: Iterable[Tool]) -> bool:
    """Whether one of these tools is handed the context of its call, so that it may log to the client."""
    return any(tool.takes_context for tool in tools)


class _Refusals:
    """Turns what a plugin's function raises into the error of its request, and logs what is the plugin's own fault."""

    def __init__(self, plugin: str, item: str, requester: Requester) -> None:
        self._plugin = plugin
        self._item = item
        self._requester = requester

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or not isinstance(error, Exception):
            return
        if isinstance(error, ServerRefused | ProtocolError):
            return
        if isinstance(error, ClientCannotAnswer) and is_stateless(self._requester.meta):
            data = {"requiredCapabilities": error.required, **error.as_object()}
            raise ServerRefused(MISSING_CAPABILITY, error.message, data) from error
        if isinstance(error, CallerError):
            raise ServerRefused(INVALID_PARAMS, error.message, error.as_object()) from error
        event(
            _log,
            logging.WARNING,
            "resource or prompt failed",
            plugin=self._plugin,
            item=self._item[:200],
            caller=self._requester.caller.id,
            exception=error,
        )
        if isinstance(error, ToolpostError):
            return
        raise ToolFailed(str(error) or type(error).__name__, exception=type(error).__name__) from error
