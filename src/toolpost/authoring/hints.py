"""Schemas of a tool from its type hints: pydantic generates them, and converts arguments to the hinted types."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from toolpost.authoring.content import Content
from toolpost.authoring.context import Context
from toolpost.authoring.result import Result
from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import InvalidArguments


@dataclass(frozen=True, kw_only=True)
class HintedFunction:
    """A type-hinted function as a tool: its schemas, and a runner that takes JSON."""

    input_schema: JsonObject
    output_schema: JsonObject | None
    run: Callable[[JsonObject, Context], Any]


class UntitledSchema(GenerateJsonSchema):
    """Omits the titles that pydantic generates: they repeat the name and fill a model's context."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def generate(self, schema: core_schema.CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        generated = super().generate(schema, mode)
        for part in (generated, *generated.get("$defs", {}).values()):
            part.pop("title", None)
        return generated


def read_hints(function: Callable[..., Any], *, skip: str | None) -> HintedFunction:
    """Generate the schemas of a function; `skip` is the parameter for the context."""
    hints = get_type_hints(function, include_extras=True)
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != skip]
    # Generated field names: an argument may be called `schema`, `copy` or `_x`, which pydantic reserves.
    names = {f"argument_{number}": parameter.name for number, parameter in enumerate(parameters)}
    fields = {field: _field_of(parameter, hints) for field, parameter in zip(names, parameters, strict=True)}
    try:
        model: type[BaseModel] = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
    except PydanticSchemaGenerationError as error:
        raise TypeError(_explain_missing_schema(parameters, hints)) from error
    # No hint describes the content of a `Result`, an `Image` and the like: a tool that returns them and data declares its
    # output schema itself.
    described = "return" in hints and not _names_content(hints["return"])
    returns = TypeAdapter(hints["return"]) if described else None
    return HintedFunction(
        input_schema=model.model_json_schema(schema_generator=UntitledSchema),
        output_schema=returns.json_schema(schema_generator=UntitledSchema, mode="serialization") if returns else None,
        run=_make_runner(function, model, names, skip, returns),
    )


def _names_content(hint: Any) -> bool:
    """Whether a hint is a class of content or results, or a list or union with one."""
    if inspect.isclass(hint):
        return issubclass(hint, Content | Result)
    return any(_names_content(part) for part in get_args(hint))


def _explain_missing_schema(parameters: list[inspect.Parameter], hints: dict[str, Any]) -> str:
    """Name the parameters whose type has no JSON Schema."""
    missing = [parameter.name for parameter in parameters if not _has_schema(hints[parameter.name])]
    shown = " and ".join(f"`{name}` is a `{getattr(hints[name], '__name__', hints[name])}`" for name in missing)
    return (
        f"{shown}, which callers cannot send as JSON;"
        " if the plugin is to provide it, declare its lifespan or provider before the tool"
    )


def _has_schema(hint: Any) -> bool:
    try:
        TypeAdapter(hint)
    except PydanticSchemaGenerationError:
        return False
    return True


def _field_of(parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise TypeError(f"`{parameter}`: a tool takes each of its arguments by name")
    if parameter.name not in hints:
        raise TypeError(f"`{parameter.name}` has no type hint, so the tool's schema cannot be generated from it")
    default = ... if parameter.default is parameter.empty else parameter.default
    return (hints[parameter.name], Field(default, alias=parameter.name))


def _make_runner(
    function: Callable[..., Any],
    model: type[BaseModel],
    names: dict[str, str],
    context_name: str | None,
    returns: TypeAdapter[Any] | None,
) -> Callable[[JsonObject, Context], Any]:
    is_async = inspect.iscoroutinefunction(function)

    def bind(arguments: JsonObject, context: Context) -> dict[str, Any]:
        generated = _validate_arguments(model, arguments)
        given = {name: getattr(generated, field) for field, name in names.items()}
        return given if context_name is None else given | {context_name: context}

    def dump(value: Any) -> Any:
        return value if returns is None else returns.dump_python(value, mode="json", by_alias=True, warnings=False)

    async def run_async(arguments: JsonObject, context: Context) -> Any:
        return dump(await function(**bind(arguments, context)))

    def run_sync(arguments: JsonObject, context: Context) -> Any:
        return dump(function(**bind(arguments, context)))

    return run_async if is_async else run_sync


def _validate_arguments(model: type[BaseModel], arguments: JsonObject) -> BaseModel:
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        # A custom validator refused what the schema accepts: still an error of the caller.
        issues = [
            {"path": "".join(f"/{part}" for part in e["loc"]), "keyword": e["type"], "message": e["msg"]}
            for e in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        # pydantic's message contains the value, which may be a secret.
        raise InvalidArguments(issues=issues) from None
