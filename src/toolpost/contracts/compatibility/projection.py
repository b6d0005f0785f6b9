"""The judged form of a schema: arguments closed against names they do not declare, results open to them.

Callers rely on declared arguments only, so an open object of arguments promises nothing about other names; and they ignore fields
of a result that they do not know, so an open result breaks no caller. For example, arguments `{"properties": {"a": {}}}` get a
property `"b": {"type": "string"}`: compared as they are, the old ones accept `{"b": 1}`, and the new ones do not. Closed, the old
ones accept no `b` at all, and the new ones more: `input.optional-added`.
"""

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.closing import close_schema
from toolpost.contracts.compatibility.cost import is_draft_neutral
from toolpost.contracts.document import REFERENCES, draft_of, map_subschemas, schemas_under

_NEWEST = "https://json-schema.org/draft/2020-12/schema"
_BRANCHES = frozenset({"allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then"})
_CLOSERS = ("additionalProperties", "unevaluatedProperties")
# Keywords under which more accepted parts mean more accepted values; under `oneOf` or `not` they may mean fewer.
_INSIDE_ONE = frozenset({"additionalProperties", "items"})
_INSIDE_NAMED = frozenset({"properties", "$defs", "definitions"})
_INSIDE_MANY = frozenset({"allOf", "anyOf", "prefixItems"})


def close_arguments(schema: Json, other: Json = None) -> Json:
    """Close an input schema; names that are required count as declared.

    If drafts make no difference to it and to `other`, the schema it is compared with, it is read in the newest draft, the only
    one that can close an object whose branches declare properties.
    """
    if not isinstance(schema, dict):
        return schema
    try:
        declared = _declare_required(schema, is_root=True)
        if (draft_of(declared) or 0) < 2019 and is_draft_neutral(declared) and is_draft_neutral(other):
            declared["$schema"] = _NEWEST
        return close_schema(_close_beside_branches(declared, is_root=True))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        # Too broken to be closed; compiling will refuse it.
        return schema


def _close_beside_branches(schema: Json, *, is_root: bool = False) -> Json:
    """Close objects whose branches describe no property that the object itself does not declare.

    For these `additionalProperties` means the same as `unevaluatedProperties`, and every draft knows it.
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
    # A value that a branch describes too is left as it is.
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
    """Declare names that are required and not declared: closed without them, the schema would accept nothing."""
    if not isinstance(schema, dict):
        return schema
    copy = map_subschemas(schema, _declare_required)
    missing = [name for name in schema.get("required") or () if name not in copy.get("properties", {})]
    is_open = all(word not in schema for word in (*_CLOSERS, "patternProperties"))
    if missing and is_open and (is_root or "properties" in schema):
        copy["properties"] = {**copy.get("properties", {}), **{name: {} for name in missing}}
    return copy


def open_results(schema: Json) -> Json:
    """Open an output schema."""
    return _open_object(schema) if isinstance(schema, dict) and not _has_inverted_reference(schema) else schema


def _open_object(schema: JsonObject) -> JsonObject:
    copy: JsonObject = {}
    for keyword, value in schema.items():
        if keyword in _CLOSERS and value is False:
            continue
        if isinstance(value, dict) and keyword in _INSIDE_ONE:
            copy[keyword] = _open_object(value)
        elif isinstance(value, dict) and keyword in _INSIDE_NAMED:
            copy[keyword] = {
                name: _open_object(inner) if isinstance(inner, dict) else inner for name, inner in value.items()
            }
        elif isinstance(value, list) and keyword in _INSIDE_MANY:
            copy[keyword] = [_open_object(inner) if isinstance(inner, dict) else inner for inner in value]
        else:
            copy[keyword] = value
    return copy


def _has_inverted_reference(value: Json, *, turned: bool = False) -> bool:
    """Return whether a `$ref` is where a wider target would make the whole schema narrower."""
    if isinstance(value, list):
        return any(_has_inverted_reference(inner, turned=turned) for inner in value)
    if not isinstance(value, dict):
        return False
    if turned and "$ref" in value:
        return True
    turns = ("oneOf", "not", "if", "contains", "propertyNames", "dependentSchemas", "dependencies")
    return any(_has_inverted_reference(inner, turned=turned or keyword in turns) for keyword, inner in value.items())
