"""A tool as its author declares it, with an explicit JSON Schema or with `@tool` on a type-hinted function."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict, Unpack, cast, get_type_hints, overload

from toolpost.authoring.content import Icon, as_icon
from toolpost.authoring.context import Context
from toolpost.base import JsonObject, nearest_name
from toolpost.contracts.apps import SCHEME, URI_KEY
from toolpost.contracts.contract import Concurrency, ToolDefinition
from toolpost.contracts.envelope import ResultStyle
from toolpost.contracts.errors import ErrorCode

_APP_OPTIONS: Final = ("app", "visibility")
"""Options that are part of a tool's `_meta`."""

Function = Callable[..., Any]

Run = Callable[[JsonObject, Context], Any]
"""Takes the arguments and the context, returns a JSON value, or an awaitable of one."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function and the contract terms it runs under."""

    terms: ToolDefinition
    run: Run
    is_async: bool
    function: Function | None = None
    takes_context: bool = False
    """Whether it is handed the call's `Context`; it may then log to the client, ask it, and the like."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function directly, without validation."""
        if self.function is None:
            raise TypeError(f"`{self.terms.name}` was declared without a function")
        return self.function(*arguments, **named)


class ToolOptions(TypedDict, total=False):
    """The options of a tool, for editors and type checkers; `None` is as if it were left out."""

    name: str | None
    title: str | None
    description: str | None
    input_schema: JsonObject | None
    output_schema: JsonObject | None
    schema_version: int
    tooling_version: str
    annotations: Mapping[str, Any] | None
    aliases: Sequence[str]
    errors: Sequence[ErrorCode]
    timeout_s: float | None
    concurrency: Concurrency
    style: ResultStyle | Literal["envelope", "plain"]
    icons: Sequence[Icon | str]
    meta: Mapping[str, Any] | None
    app: Any
    """The app that shows its results: what `Plugin.app` returned, or its URI."""
    visibility: Sequence[Literal["model", "app"]] | None
    """Who may call it; `("app",)` hides it from models."""


class ToolMethod:
    """A method that is to be a tool, once `Plugin.tool_class` has its class; called on an instance, it is the method."""

    def __init__(self, function: Function, options: dict[str, Any]) -> None:
        self.function = function
        self.options = options

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else self.function.__get__(instance, owner)


@overload
def tool(function: Function, /) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Function], Tool]: ...
def tool(function: Function | None = None, /, **options: Any) -> Tool | Callable[[Function], Tool]:
    """Make a function a tool.

    With `input_schema`, the function takes the arguments as one dict. Without, both schemas are generated from its type hints
    and it takes them by name. Either way a parameter annotated `Context` receives the call's context. A method of a class
    becomes a tool with `Plugin.tool_class`.

        @tool
        async def greet(name: str, excited: bool = False) -> str:
            "Greet a person by name."
            return f"Hello {name}" + "!" * excited
    """
    if function is not None:
        return _make_tool(function, {})
    return lambda decorated: _make_tool(decorated, options)


def _make_tool(function: Function, options: dict[str, Any]) -> Tool:
    options = _merge_app(options)
    _check_options(options)
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is not None and first.name == "self" and first.annotation is first.empty:
        return cast("Tool", ToolMethod(function, options))
    given = {key: value for key, value in options.items() if value is not None}
    description = given.pop("description", None) or inspect.getdoc(function) or ""
    name = given.pop("name", None) or function.__name__
    for key in ("aliases", "errors"):
        given[key] = tuple(given.get(key, ()))
    given["icons"] = tuple(as_icon(icon) for icon in given.get("icons", ()))
    given["style"] = ResultStyle(given.get("style", ResultStyle.ENVELOPE))
    run: Run
    if "input_schema" in given:
        run = _run_with_dict(function)
    else:
        # pydantic is imported only for tools whose schemas it generates.
        from toolpost.authoring.hints import read_hints

        try:
            hinted = read_hints(function, skip=context_parameter(function))
        except TypeError as error:
            raise TypeError(f"tool `{name}`: {error}") from error
        run = hinted.run
        given["input_schema"] = hinted.input_schema
        if _may_publish(hinted.output_schema, given["style"]):
            given.setdefault("output_schema", hinted.output_schema)
        elif hinted.output_schema and "output_schema" not in options:
            given["result_schema"] = hinted.output_schema
    terms = ToolDefinition(name=name, description=description, **given)
    return Tool(
        terms=terms,
        run=run,
        is_async=inspect.iscoroutinefunction(function),
        function=function,
        takes_context=context_parameter(function) is not None,
    )


def _merge_app(options: dict[str, Any]) -> dict[str, Any]:
    """Write `app` and `visibility` into the `_meta` of the tool, where hosts look for them."""
    others = {key: value for key, value in options.items() if key not in _APP_OPTIONS}
    uri, visibility = uri_of_app(options.get("app")), options.get("visibility")
    if uri is None and visibility is None:
        return others
    if unknown := [one for one in visibility or () if one not in ("model", "app")]:
        raise TypeError(f"unknown visibility `{unknown[0]}` of a tool; known: model and app")
    ui: JsonObject = {} if uri is None else {"resourceUri": uri}
    if visibility is not None:
        ui["visibility"] = list(visibility)
    # Hosts of the extension's first drafts know the second form alone.
    return others | {"meta": {**(others.get("meta") or {}), "ui": ui} | ({} if uri is None else {URI_KEY: uri})}


def uri_of_app(app: Any) -> str | None:
    """Return the URI of an app that is given by it, or as a resource."""
    uri = getattr(app, "uri", app)
    if uri is not None and not (isinstance(uri, str) and uri.startswith(SCHEME)):
        raise TypeError(f"`app` is the URI of an app, `{SCHEME}…`, or what `Plugin.app` returned")
    return uri


def _check_options(options: dict[str, Any]) -> None:
    known = [
        *(field.name for field in dataclasses.fields(ToolDefinition) if field.name != "result_schema"),
        *_APP_OPTIONS,
    ]
    for name in options:
        if name not in known:
            near = nearest_name(name, known)
            raise TypeError(f"unknown option `{name}` of a tool" + (f"; did you mean `{near}`?" if near else ""))
    if (style := options.get("style", ResultStyle.ENVELOPE)) not in list(ResultStyle):
        raise TypeError(f"unknown result style `{style}`; known: {' and '.join(ResultStyle)}")


def _may_publish(schema: JsonObject | None, style: ResultStyle) -> bool:
    """Whether an output schema can be listed: a plain result must be an object, an envelope always is."""
    return style is ResultStyle.ENVELOPE or (schema is not None and schema.get("type") == "object")


def _run_with_dict(function: Function) -> Run:
    context_name = context_parameter(function)
    others = [name for name in inspect.signature(function).parameters if name != context_name]
    if len(others) > 1:
        raise TypeError("with an input_schema, a tool takes its arguments as one dict")
    if not others:
        return lambda _arguments, context: function(**({context_name: context} if context_name else {}))
    if context_name is None:
        return lambda arguments, _context: function(arguments)
    return lambda arguments, context: function(**{others[0]: arguments, context_name: context})


def context_parameter(function: Function) -> str | None:
    """Return the name of the parameter that is annotated `Context`, None if there is none."""
    hints = get_type_hints(function)
    return next((name for name, hint in hints.items() if hint in (Context, Context | None) and name != "return"), None)
