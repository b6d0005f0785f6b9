"""Resources and prompts as their author declares them: functions under a URI, a URI template, or a name."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

import msgspec

from toolpost.authoring.content import File, Icon, as_icon, is_text_type, make_contents
from toolpost.authoring.context import Context
from toolpost.authoring.message import as_messages
from toolpost.authoring.tool import Function, context_parameter
from toolpost.authoring.uri_template import UriTemplate, parse_template
from toolpost.base.ids import JsonObject
from toolpost.contracts.apps import MIME_TYPE
from toolpost.contracts.errors import ToolFailed

COMPLETIONS_LIMIT: Final = 100
"""How many completions one answer may have, by MCP."""

Completer = Callable[..., Sequence[str] | Awaitable[Sequence[str]]]
"""Takes what has been typed, and if it has a second parameter the other arguments by name; returns what it may become."""


class PromptOptions(TypedDict, total=False):
    """The options of a prompt, for editors and type checkers."""

    name: str | None
    title: str | None
    description: str | None
    icons: Sequence[Icon | str]
    meta: Mapping[str, Any] | None
    timeout_s: float | None


class ResourceOptions(PromptOptions, total=False):
    """The options of a resource, for editors and type checkers."""

    mime_type: str | None
    size: int | None
    annotations: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Declared:
    """What resources and prompts have in common."""

    function: Function
    name: str
    title: str | None = None
    description: str = ""
    icons: tuple[JsonObject, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    context_name: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The `TextParameter`s of the function."""
    completers: dict[str, Completer] = field(default_factory=dict)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function directly."""
        return self.function(*arguments, **named)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def complete(self, argument: str) -> Callable[[Completer], Completer]:
        """Offer completions for an argument; a decorator. Arguments with a `Literal` or an enum need none."""
        if argument not in self.parameters:
            raise TypeError(f"`{self.name}` has no argument `{argument}`")

        def add(completer: Completer) -> Completer:
            self.completers[argument] = completer
            return completer

        return add

    @property
    def has_completions(self) -> bool:
        """Whether an argument can be completed."""
        return bool(self.completers) or any(parameter.choices for parameter in self.parameters.values())

    def bind(self, given: Mapping[str, str], context: Context) -> dict[str, Any]:
        """Return the arguments of the function; raises `InvalidArguments`."""
        from toolpost.authoring.arguments import convert_arguments

        arguments = convert_arguments(self.parameters, given)
        return arguments if self.context_name is None else arguments | {self.context_name: context}

    def _describe(self) -> JsonObject:
        listed: JsonObject = {"name": self.name}
        if self.title:
            listed["title"] = self.title
        if self.description:
            listed["description"] = self.description
        if self.icons:
            listed["icons"] = list(self.icons)
        if self.meta:
            listed["_meta"] = dict(self.meta)
        return listed


@dataclass(frozen=True, kw_only=True, eq=False)
class Resource(_Declared):
    """A function that gives a resource, under a URI or a URI template."""

    uri: str
    template: UriTemplate | None = None
    """None for a URI without parameters."""
    mime_type: str | None = None
    size: int | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the template in a URI; None if this is not the resource."""
        if self.template is None:
            return {} if uri == self.uri else None
        return self.template.match(uri)

    @property
    def definition(self) -> JsonObject:
        """The resource as `resources/list`, or the template as `resources/templates/list`, shows it."""
        listed: JsonObject = {"uri" if self.template is None else "uriTemplate": self.uri} | self._describe()
        if self.mime_type:
            listed["mimeType"] = self.mime_type
        if self.size is not None and self.template is None:
            listed["size"] = self.size
        if self.annotations:
            listed["annotations"] = dict(self.annotations)
        return listed

    def write(self, uri: str, value: Any) -> list[JsonObject]:
        """Return the contents of what the function gave: text, bytes, a `File`, a list of these, or JSON."""
        is_list = isinstance(value, list) and value and all(isinstance(item, File | bytes) for item in value)
        items = value if is_list else [value]
        contents = [self._write_one(uri, item) for item in items]
        # A host takes the rules for an app's page from its contents.
        is_app = self.mime_type == MIME_TYPE and bool(self.meta)
        return [item | {"_meta": dict(self.meta)} for item in contents] if is_app else contents

    def _write_one(self, uri: str, value: Any) -> JsonObject:
        if isinstance(value, File):
            return value.as_contents()
        if isinstance(value, str):
            return make_contents(uri, value, self.mime_type or "text/plain")
        if isinstance(value, bytes | bytearray | memoryview):
            kind = self.mime_type or "application/octet-stream"
            raw = bytes(value)
            return make_contents(uri, raw.decode() if is_text_type(kind) and _is_utf8(raw) else raw, kind)
        try:
            plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_dump_model)
            return make_contents(uri, msgspec.json.encode(plain).decode(), self.mime_type or "application/json")
        except (TypeError, ValueError, RecursionError) as error:
            raise ToolFailed(f"The resource is neither text, bytes nor JSON: {error}") from error


@dataclass(frozen=True, kw_only=True, eq=False)
class Prompt(_Declared):
    """A function that gives the messages of a prompt."""

    @property
    def definition(self) -> JsonObject:
        """The prompt as `prompts/list` shows it, without the plugin's name."""
        arguments = []
        for name, parameter in self.parameters.items():
            argument: JsonObject = {"name": name, "required": parameter.is_required}
            if parameter.description:
                argument["description"] = parameter.description
            arguments.append(argument)
        return self._describe() | ({"arguments": arguments} if arguments else {})

    def write(self, value: Any) -> JsonObject:
        """Return the result of `prompts/get` for what the function gave; raise `ToolFailed` if it is no message."""
        try:
            messages = as_messages(value)
        except TypeError as error:
            raise ToolFailed(f"The prompt is no list of messages: {error}") from error
        return {"messages": messages} | ({"description": self.description} if self.description else {})


def make_resource(
    function: Function,
    uri: str,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size: int | None = None,
    annotations: Mapping[str, Any] | None = None,
    icons: Sequence[Icon | str] = (),
    meta: Mapping[str, Any] | None = None,
    timeout_s: float | None = None,
) -> Resource:
    """Declare a function as a resource; raise TypeError if its parameters are not those of the URI."""
    from toolpost.authoring.arguments import text_parameters

    context_name = context_parameter(function)
    parameters = text_parameters(function, skip=context_name)
    try:
        template = parse_template(uri)
    except ValueError as error:
        raise TypeError(str(error)) from error
    if "://" not in uri and ":" not in uri:
        raise TypeError(f"`{uri}` is no URI: it has no scheme, as in `notes://today`")
    if unknown := [value for value in template.names if value not in parameters]:
        raise TypeError(f"`{uri}`: the function has no parameter `{unknown[0]}`")
    for parameter in parameters.values():
        if parameter.is_required and (parameter.name not in template.names or parameter.name in template.optional):
            raise TypeError(f"`{uri}`: nothing in it gives the parameter `{parameter.name}`, which has no default")
    return Resource(
        function=function,
        uri=uri,
        template=template if template.names else None,
        name=name or function.__name__,
        title=title,
        description=description or inspect.getdoc(function) or "",
        mime_type=mime_type,
        size=size,
        annotations=annotations or {},
        icons=tuple(as_icon(icon) for icon in icons),
        meta=meta or {},
        timeout_s=timeout_s,
        context_name=context_name,
        parameters={name: parameters[name] for name in template.names},
    )


def make_prompt(
    function: Function,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: Sequence[Icon | str] = (),
    meta: Mapping[str, Any] | None = None,
    timeout_s: float | None = None,
) -> Prompt:
    """Declare a function as a prompt."""
    from toolpost.authoring.arguments import text_parameters

    context_name = context_parameter(function)
    return Prompt(
        function=function,
        name=name or function.__name__,
        title=title,
        description=description or inspect.getdoc(function) or "",
        icons=tuple(as_icon(icon) for icon in icons),
        meta=meta or {},
        timeout_s=timeout_s,
        context_name=context_name,
        parameters=text_parameters(function, skip=context_name),
    )


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _dump_model(value: Any) -> Any:
    """Return the fields of a pydantic model, which msgspec does not know."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} is not JSON")
