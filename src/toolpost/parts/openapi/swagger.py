"""Reads operations of Swagger 2.0 as if they were OpenAPI 3: parameters, bodies, answers and security in the newer form.

Only one level is rewritten. References stay as they are, since they are followed in the original document.
"""

from collections.abc import Sequence
from typing import Final

from toolpost.base import Json, JsonObject
from toolpost.parts.openapi.document import Document, Unusable

_SCHEMA_KEYS: Final = (
    *("type", "format", "items", "default", "enum", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"),
    *("maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf"),
)
_FORMATS: Final = {
    "csv": ("form", False),
    "ssv": ("spaceDelimited", False),
    "pipes": ("pipeDelimited", False),
    "multi": ("form", True),
}
FORM: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"


def convert_parameters(
    document: Document, operation: JsonObject, parameters: Sequence[JsonObject]
) -> tuple[list[JsonObject], JsonObject | None]:
    """Return the parameters in the form of OpenAPI 3, and the request body that some of them stand for; raises `Unusable`."""
    consumes = _media_types(document, operation, "consumes")
    kept: list[JsonObject] = []
    fields: list[JsonObject] = []
    body: JsonObject | None = None
    for parameter in parameters:
        place = parameter.get("in")
        if place == "body":
            types = consumes or ["application/json"]
            schema = parameter.get("schema", {})
            body = {
                "required": parameter.get("required") is True,
                "content": {media_type: {"schema": schema} for media_type in types},
                "description": parameter.get("description", ""),
            }
        elif place == "formData":
            fields.append(parameter)
        else:
            kept.append(_convert_parameter(parameter))
    return kept, _form_body(fields, consumes) if fields else body


def _convert_parameter(parameter: JsonObject) -> JsonObject:
    converted: JsonObject = {
        key: parameter[key] for key in ("name", "in", "description", "required") if key in parameter
    }
    converted["schema"] = {key: parameter[key] for key in _SCHEMA_KEYS if key in parameter}
    if parameter.get("type") == "array":
        style, explode = _read_format(parameter)
        is_simple = parameter.get("in") in ("path", "header")
        converted |= {"style": "simple" if is_simple else style, "explode": explode and not is_simple}
    return converted


def _read_format(parameter: JsonObject) -> tuple[str, bool]:
    given = str(parameter.get("collectionFormat", "csv"))
    if given not in _FORMATS:
        raise Unusable(
            f"the parameter {parameter.get('name')} has the collection format {given}, which OpenAPI 3 has not"
        )
    return _FORMATS[given]


def _form_body(fields: Sequence[JsonObject], consumes: Sequence[str]) -> JsonObject:
    has_file = any(field.get("type") == "file" for field in fields)
    media_type = MULTIPART if has_file or (MULTIPART in consumes and FORM not in consumes) else FORM
    properties: JsonObject = {}
    encoding: JsonObject = {}
    for field in fields:
        name = str(field.get("name"))
        properties[name] = {key: field[key] for key in (*_SCHEMA_KEYS, "description") if key in field}
        if field.get("type") == "array":
            style, explode = _read_format(field)
            encoding[name] = {"style": style, "explode": explode}
    required: list[Json] = [str(field.get("name")) for field in fields if field.get("required") is True]
    schema: JsonObject = {"type": "object", "properties": properties, "required": required}
    return {"required": bool(required), "content": {media_type: {"schema": schema, "encoding": encoding}}}


def convert_response(document: Document, operation: JsonObject, response: JsonObject) -> JsonObject:
    """Return a response in the form of OpenAPI 3."""
    if "schema" not in response:
        return {}
    types = _media_types(document, operation, "produces") or ["application/json"]
    return {"content": {media_type: {"schema": response["schema"]} for media_type in types}}


def convert_security(scheme: JsonObject) -> JsonObject:
    """Return a security scheme in the form of OpenAPI 3."""
    if scheme.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    if scheme.get("type") == "oauth2" and scheme.get("flow") == "accessCode":
        return {"type": "oauth2", "flows": {"authorizationCode": scheme}}
    return scheme


def find_server(document: Document) -> str | None:
    """Return the URL that the document names; None if it names none."""
    host = document.raw.get("host")
    if not isinstance(host, str) or not host:
        return None
    schemes = document.raw.get("schemes")
    scheme = "https" if not isinstance(schemes, list) or "https" in schemes or not schemes else str(schemes[0])
    return f"{scheme}://{host}{document.raw.get('basePath') or ''}"


def _media_types(document: Document, operation: JsonObject, key: str) -> list[str]:
    found = operation.get(key, document.raw.get(key))
    return [str(each) for each in found] if isinstance(found, list) else []
