"""What a schema is judged as: arguments closed against what they do not name, results open to it."""

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.closing import close_schema
from toolpost.contracts.compatibility.cost import is_draft_neutral
from toolpost.contracts.document import REFERENCES
from toolpost.contracts.subschemas import ONE_SUBSCHEMA, SUBSCHEMA_LIST, SUBSCHEMA_MAP, draft_of, schemas_under

_NEWEST = "https://json-schema.org/draft/2020-12/schema"
_BRANCHES = frozenset({"allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then"})
_CLOSERS = ("additionalProperties", "unevaluatedProperties")
# Only where more values in a part mean more values in the whole; under `oneOf` or `not` they may mean fewer.
_INSIDE_ONE = frozenset({"additionalProperties", "items"})
_INSIDE_NAMED = frozenset({"properties", "$defs", "definitions"})
_INSIDE_MANY = frozenset({"allOf", "anyOf", "prefixItems"})


def close_arguments(schema: Json, other: Json = None) -> Json:
    """Close what callers may send: an argument that nobody declared is no promise, unless it is required.

    Where drafts make no difference to it and `other`, the schema that it is held against, it is read in the newest one,
    which alone can close an object whose branches declare properties.
    """
    if not isinstance(schema, dict):
        return schema
    try:
        declared = _declare_required(schema, is_root=True)
        if (draft_of(declared) or 0) < 2019 and is_draft_neutral(declared) and is_draft_neutral(other):
            declared["$schema"] = _NEWEST
        return close_schema(_close_beside_branches(declared, is_root=True))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        # Too broken to be closed: it is refused when it is compiled.
        return schema


def _close_beside_branches(schema: Json, *, is_root: bool = False) -> Json:
    """Close objects whose branches say nothing of properties that the object itself does not declare.

    For these `additionalProperties` is the same as `unevaluatedProperties`, and every draft knows it.
    """
    if not isinstance(schema, dict) or not schema.keys().isdisjoint(REFERENCES):
        return schema
    copy = dict(schema)
    properties = schema.get("properties")
    declared = properties if isinstance(properties, dict) else {}
    branches = [branch for word in _BRANCHES & schema.keys() for _, branch in schemas_under(word, schema[word])]
    is_open = all(word not in schema for word in (*_CLOSERS, "patternProperties"))
    if branches and is_open and (declared or is_root) and all(_adds_nothing(branch, declared) for branch in branches):
        copy["additionalProperties"] = False
    # A value that a branch describes again is left as it is.
    if not any(_describes_properties(branch) for branch in branches):
        if declared:
            copy["properties"] = {name: _close_beside_branches(child) for name, child in declared.items()}
        if isinstance(schema.get("items"), dict):
            copy["items"] = _close_beside_branches(schema["items"])
    return copy


def _adds_nothing(branch: JsonObject, declared: JsonObject) -> bool:
    if not branch.keys().isdisjoint((*REFERENCES, *_CLOSERS, "patternProperties")):
        return False
    if any(name not in declared for name in branch.get("properties", ())):
        return False
    inner = (each for word in _BRANCHES & branch.keys() for _, each in schemas_under(word, branch[word]))
    return all(_adds_nothing(each, declared) for each in inner)


def _describes_properties(branch: JsonObject) -> bool:
    if not branch.keys().isdisjoint((*REFERENCES, *_CLOSERS, "patternProperties", "properties", "items", "contains")):
        return True
    return any(
        _describes_properties(each)
        for word in _BRANCHES & branch.keys()
        for _, each in schemas_under(word, branch[word])
    )


def _declare_required(schema: Json, *, is_root: bool = False) -> Json:
    """Declare what is required and not declared; closed as it is, the schema would take nothing at all."""
    if not isinstance(schema, dict):
        return schema
    copy = {keyword: _declare_below(keyword, value) for keyword, value in schema.items()}
    missing = [name for name in schema.get("required") or () if name not in copy.get("properties", {})]
    is_open = all(word not in schema for word in (*_CLOSERS, "patternProperties"))
    if missing and is_open and (is_root or "properties" in schema):
        copy["properties"] = {**copy.get("properties", {}), **{name: {} for name in missing}}
    return copy


def _declare_below(keyword: str, value: Json) -> Json:
    if isinstance(value, dict) and keyword in SUBSCHEMA_MAP:
        return {name: _declare_required(child) for name, child in value.items()}
    if isinstance(value, list) and keyword in SUBSCHEMA_LIST:
        return [_declare_required(child) for child in value]
    return _declare_required(value) if keyword in ONE_SUBSCHEMA else value


def open_results(schema: Json) -> Json:
    """Open what callers may read: they ignore a field that they do not know."""
    return _open_object(schema) if isinstance(schema, dict) and not _has_inverted_reference(schema) else schema


def _open_object(schema: JsonObject) -> JsonObject:
    copy = {}
    for keyword, value in schema.items():
        if keyword in _CLOSERS and value is False:
            continue
        copy[keyword] = _open_keyword(keyword, value)
    return copy


def _open_keyword(keyword: str, value: Json) -> Json:
    if isinstance(value, dict) and keyword in _INSIDE_ONE:
        return _open_object(value)
    if isinstance(value, dict) and keyword in _INSIDE_NAMED:
        return {name: _open_object(child) if isinstance(child, dict) else child for name, child in value.items()}
    if isinstance(value, list) and keyword in _INSIDE_MANY:
        return [_open_object(child) if isinstance(child, dict) else child for child in value]
    return value


def _has_inverted_reference(value: Json, *, turned: bool = False) -> bool:
    """Say whether a reference stands where a wider target would make the whole narrower."""
    if isinstance(value, list):
        return any(_has_inverted_reference(inner, turned=turned) for inner in value)
    if not isinstance(value, dict):
        return False
    if turned and "$ref" in value:
        return True
    turns = ("oneOf", "not", "if", "contains", "propertyNames", "dependentSchemas", "dependencies")
    return any(_has_inverted_reference(inner, turned=turned or keyword in turns) for keyword, inner in value.items())
