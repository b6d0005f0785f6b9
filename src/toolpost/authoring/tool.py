"""A tool as its author declares it, with an explicit JSON Schema or with `@tool` on a type-hinted function."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints, overload

from toolpost.authoring.context import Context
from toolpost.base.ids import JsonObject
from toolpost.base.nearest import nearest_name
from toolpost.contracts.contract import Concurrency, Terms
from toolpost.contracts.envelope import ResultStyle
from toolpost.contracts.errors import ErrorCode

Function = Callable[..., Any]

Run = Callable[[JsonObject, Context], Any]
"""Takes the arguments and the context, returns a JSON value, or an awaitable of one."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function and the contract terms it runs under."""

    terms: Terms
    run: Run
    is_async: bool
    function: Function | None = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function directly, without validation."""
        if self.function is None:
            raise TypeError(f"`{self.terms.name}` was declared without a function")
        return self.function(*arguments, **named)


@overload
def tool(function: Function, /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    input_schema: JsonObject | None = None,
    output_schema: JsonObject | None = None,
    schema_version: int = 1,
    tooling_version: str = "",
    annotations: Mapping[str, Any] | None = None,
    aliases: Sequence[str] = (),
    errors: Sequence[ErrorCode] = (),
    timeout_s: float | None = None,
    concurrency: Concurrency = "parallel",
    style: ResultStyle | str = ResultStyle.ENVELOPE,
) -> Callable[[Function], Tool]: ...
def tool(function: Function | None = None, /, **options: Any) -> Tool | Callable[[Function], Tool]:
    """Make a function a tool.

    With `input_schema`, the function takes the arguments as one dict. Without, both schemas are generated from its type hints
    and it takes them by name. Either way a parameter annotated `Context` receives the call's context.

        @tool
        async def greet(name: str, excited: bool = False) -> str:
            "Greet a person by name."
            return f"Hello {name}" + "!" * excited
    """
    if function is not None:
        return _make_tool(function, {})
    return lambda decorated: _make_tool(decorated, options)


def _make_tool(function: Function, options: dict[str, Any]) -> Tool:
    _check_options(options)
    given = {key: value for key, value in options.items() if value is not None}
    description = given.pop("description", None) or inspect.getdoc(function) or ""
    name = given.pop("name", None) or function.__name__
    for key in ("aliases", "errors"):
        given[key] = tuple(given.get(key, ()))
    given["style"] = ResultStyle(given.get("style", ResultStyle.ENVELOPE))
    run: Run
    if "input_schema" in given:
        run = _run_with_dict(function)
    else:
        # pydantic is imported only for tools whose schemas it generates.
        from toolpost.authoring.hints import schemas_of

        hinted = schemas_of(function, skip=_context_parameter(function))
        run = hinted.run
        given["input_schema"] = hinted.input_schema
        if _may_publish(hinted.output_schema, given["style"]):
            given.setdefault("output_schema", hinted.output_schema)
    terms = Terms(name=name, description=description, **given)
    return Tool(terms=terms, run=run, is_async=inspect.iscoroutinefunction(function), function=function)


def _check_options(options: dict[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(Terms)]
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
    context_name = _context_parameter(function)
    others = [name for name in inspect.signature(function).parameters if name != context_name]
    if len(others) > 1:
        raise TypeError("with an input_schema, a tool takes its arguments as one dict")
    if not others:
        return lambda _arguments, context: function(**({context_name: context} if context_name else {}))
    if context_name is None:
        return lambda arguments, _context: function(arguments)
    return lambda arguments, context: function(**{others[0]: arguments, context_name: context})


def _context_parameter(function: Function) -> str | None:
    hints = get_type_hints(function)
    return next((name for name, hint in hints.items() if hint in (Context, Context | None) and name != "return"), None)
