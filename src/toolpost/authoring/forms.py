"""Forms for users, made from types: the flat JSON Schema that MCP allows in an elicitation, and the answer as that type."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from toolpost.authoring.hints import UntitledSchema
from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import ToolFailed
from toolpost.contracts.issues import find_issues
from toolpost.contracts.schema import SchemaProblem, compile_schema

VALUE: Final = "value"
"""The one field of a form that is made from a type without fields, such as `bool`."""

_PRIMITIVES: Final = frozenset({"string", "number", "integer", "boolean"})


@dataclass(frozen=True, kw_only=True)
class Form:
    """A form's schema, and what makes its answer the type that was asked for."""

    schema: JsonObject
    convert: Callable[[JsonObject], Any]

    def read(self, content: JsonObject) -> Any:
        """Return the answer as the type that was asked for; raise `ToolFailed` if the client let a wrong one pass."""
        try:
            issues = [
                issue.as_object() for issue in find_issues(compile_schema(self.schema, root_object=True), content)
            ]
        except SchemaProblem as problem:
            raise ToolFailed(f"The form's schema cannot be used: {problem.place}: {problem.reason}") from problem
        try:
            if not issues:
                return self.convert(content)
        except ValidationError as error:
            # pydantic's message contains the value, which may be a secret.
            issues = [
                {"path": "".join(f"/{part}" for part in e["loc"]), "message": e["msg"]}
                for e in error.errors(include_url=False, include_context=False, include_input=False)
            ]
        raise ToolFailed(
            "The client accepted an answer that does not fit the form.",
            hint="this is an error of the client, not of the tool",
            issues=issues,
        )


def form_of(kind: Any) -> Form:
    """Make a form from a JSON Schema or a type: a model, a data class, a `TypedDict`, or a single value.

    Fields are text, numbers, booleans and choices; raises TypeError for any other.
    """
    if isinstance(kind, Mapping):
        return Form(schema=dict(kind), convert=dict)
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    generated = adapter.json_schema(schema_generator=UntitledSchema)
    definitions = generated.get("$defs", {})
    resolved = _resolve(generated, definitions)
    if resolved.get("type") != "object":
        field = _flatten(VALUE, resolved, definitions)
        schema: JsonObject = {"type": "object", "properties": {VALUE: field}, "required": [VALUE]}
        return Form(schema=schema, convert=lambda content: adapter.validate_python(content[VALUE]))
    if "properties" not in resolved:
        raise TypeError(f"`{kind}`: the fields of a form have names")
    fields = {name: _flatten(name, field, definitions) for name, field in resolved["properties"].items()}
    schema = {"type": "object", "properties": fields}
    if required := resolved.get("required"):
        schema["required"] = required
    return Form(schema=schema, convert=adapter.validate_python)


def _resolve(schema: JsonObject, definitions: JsonObject) -> JsonObject:
    """Return a schema without a reference at its root."""
    while isinstance(reference := schema.get("$ref"), str):
        others = {key: value for key, value in schema.items() if key not in ("$ref", "$defs")}
        schema = definitions[reference.rpartition("/")[2]] | others
    return {key: value for key, value in schema.items() if key != "$defs"}


def _flatten(name: str, schema: JsonObject, definitions: JsonObject) -> JsonObject:
    field = _resolve(schema, definitions)
    choices = field.get("anyOf")
    if isinstance(choices, list):
        # An optional field: a form leaves it out instead of sending null.
        kinds = [choice for choice in choices if choice.get("type") != "null"]
        if len(kinds) == 1:
            others = {key: value for key, value in field.items() if key != "anyOf"}
            field = _resolve(kinds[0], definitions) | others
    if "const" in field and "enum" not in field:
        field = {key: value for key, value in field.items() if key != "const"} | {"enum": [field["const"]]}
    if field.get("default", ...) is None:
        del field["default"]
    if field.get("type") == "array" and isinstance(field.get("items"), dict):
        items = _resolve(field["items"], definitions)
        if "enum" in items or "anyOf" in items:
            return field | {"items": items}
    if field.get("type") not in _PRIMITIVES:
        raise TypeError(f"`{name}`: the fields of a form are text, numbers, booleans, choices and lists of choices")
    return field
