"""Definitions changed on purpose, by named mutations whose effect on callers is known beforehand."""

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]
Mutate = Callable[[Schema, random.Random], bool]
"""Changes a schema in place and says whether there was anything to change."""

_LIMITS = ("enum", "const", "anyOf", "oneOf", "allOf", "$ref", "not", "if")


@dataclass(frozen=True)
class Mutation:
    name: str
    mutate: Mutate
    breaks: bool


INPUT: list[Mutation] = []
OUTPUT: list[Mutation] = []


def on(places: list[Mutation], *, breaks: bool) -> Callable[[Mutate], Mutate]:
    def register(mutate: Mutate) -> Mutate:
        places.append(Mutation(mutate.__name__, mutate, breaks))
        return mutate

    return register


def mutated(schema: Schema, mutation: Mutation, rng: random.Random) -> Schema | None:
    changed = copy.deepcopy(schema)
    return changed if mutation.mutate(changed, rng) and changed != schema else None


def objects(schema: Schema) -> Iterator[Schema]:
    """Yield the objects that a value surely reaches: through properties alone, with nothing combined around them."""
    if schema.get("type") == "object" and not any(word in schema for word in _LIMITS):
        yield schema
        for child in _properties(schema).values():
            if isinstance(child, dict) and _properties(child):
                yield from objects(child)


def _properties(schema: Schema) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def an_object(schema: Schema, rng: random.Random) -> Schema | None:
    found = [each for each in objects(schema) if _properties(each)]
    return rng.choice(found) if found else None


def a_property(schema: Schema, rng: random.Random, *types: str) -> tuple[Schema, str] | None:
    """Return an object and the name of a plain property of it that is of one of the types."""
    found = [
        (each, name)
        for each in objects(schema)
        for name, child in _properties(each).items()
        if isinstance(child, dict)
        and (not types or (child.get("type") in types and not any(w in child for w in _LIMITS)))
    ]
    return rng.choice(found) if found else None


def an_enum(schema: Schema, rng: random.Random) -> list[Any] | None:
    found = [
        child["enum"]
        for each in objects(schema)
        for child in _properties(each).values()
        if isinstance(child, dict)
        and child.get("type") == "string"
        and isinstance(child.get("enum"), list)
        and child["enum"]
    ]
    return rng.choice(found) if found else None


def _change(kind: str, change: Callable[[Schema], bool]) -> Mutate:
    def mutate(schema: Schema, rng: random.Random) -> bool:
        found = a_property(schema, rng, *kind.split())
        return found is not None and change(found[0]["properties"][found[1]])

    return mutate


# What takes fewer values than before: breaks callers as arguments, harms nobody as a result.


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=False)
def require_an_optional_property(schema: Schema, rng: random.Random) -> bool:
    found = [
        (each, name)
        for each in objects(schema)
        for name, child in _properties(each).items()
        if name not in each.get("required", ()) and child is not False
    ]
    if not found:
        return False
    each, name = rng.choice(found)
    each["required"] = [*each.get("required", ()), name]
    return True


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=False)
def add_a_required_property(schema: Schema, rng: random.Random) -> bool:
    each = an_object(schema, rng)
    if each is None:
        return False
    each["properties"]["brand_new"] = {"type": "string", "description": "Something new."}
    each["required"] = [*each.get("required", ()), "brand_new"]
    return True


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=False)
def drop_a_value(schema: Schema, rng: random.Random) -> bool:
    values = an_enum(schema, rng)
    if values is None or len(set(map(str, values))) < 2:
        return False
    gone = rng.choice(values)
    values[:] = [value for value in values if value != gone]
    return True


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=False)
def list_the_values(schema: Schema, rng: random.Random) -> bool:
    return _change("string", lambda child: not child.update(enum=["one", "two"]))(schema, rng)


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=False)
def number_to_integer(schema: Schema, rng: random.Random) -> bool:
    def change(child: Schema) -> bool:
        child["type"] = "integer"
        return not any(
            word in child for word in ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        )

    return _change("number", change)(schema, rng)


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=False)
def tighten_a_number(schema: Schema, rng: random.Random) -> bool:
    def change(child: Schema) -> bool:
        if any(word in child for word in ("exclusiveMinimum", "exclusiveMaximum", "multipleOf")):
            return False
        low, high = child.get("minimum"), child.get("maximum")
        if low is not None and high is not None and low + 1 > high:
            return False
        word = rng.choice(("minimum", "maximum"))
        child[word] = (
            (low if low is not None else (high or 0) - 10) + 1
            if word == "minimum"
            else (high if high is not None else (low or 0) + 10) - 1
        )
        return True

    return _change("number integer", change)(schema, rng)


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=False)
def shorten_a_text(schema: Schema, rng: random.Random) -> bool:
    def change(child: Schema) -> bool:
        if any(word in child for word in ("format", "pattern")) or child.get("maxLength", 9) < 2:
            return False
        child["maxLength"] = child.get("maxLength", 5_001) - 1
        return bool(child["maxLength"] > child.get("minLength", 0))

    return _change("string", change)(schema, rng)


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=False)
def ask_for_a_longer_text(schema: Schema, rng: random.Random) -> bool:
    def change(child: Schema) -> bool:
        if any(word in child for word in ("format", "pattern")):
            return False
        child["minLength"] = child.get("minLength", 0) + 1
        return bool(child["minLength"] <= child.get("maxLength", 10**9))

    return _change("string", change)(schema, rng)


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=False)
def add_a_pattern(schema: Schema, rng: random.Random) -> bool:
    return _change("string", lambda c: "pattern" not in c and "format" not in c and not c.update(pattern="^[a-z]{3}$"))(
        schema, rng
    )


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=False)
def add_a_format(schema: Schema, rng: random.Random) -> bool:
    return _change("string", lambda c: "pattern" not in c and "format" not in c and not c.update(format="date"))(
        schema, rng
    )


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=False)
def ask_for_an_item(schema: Schema, rng: random.Random) -> bool:
    return _change("array", lambda c: "minItems" not in c and not c.update(minItems=1))(schema, rng)


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=False)
def close_a_free_object(schema: Schema, rng: random.Random) -> bool:
    free = ("properties", "additionalProperties", "patternProperties", "maxProperties", "propertyNames")
    return _change("object", lambda c: not any(w in c for w in free) and not c.update(additionalProperties=False))(
        schema, rng
    )


# What takes other values than before: breaks both.


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=True)
def retype_a_property(schema: Schema, rng: random.Random) -> bool:
    found = a_property(schema, rng, "string", "integer", "boolean", "array")
    if found is None:
        return False
    each, name = found
    each["properties"][name] = {"type": "number" if each["properties"][name]["type"] != "integer" else "boolean"}
    return True


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=True)
def remove_a_property(schema: Schema, rng: random.Random) -> bool:
    found = a_property(schema, rng, "string", "integer", "number", "boolean", "array", "object")
    if found is None:
        return False
    each, name = found
    del each["properties"][name]
    each["required"] = [other for other in each.get("required", ()) if other != name]
    return True


@on(INPUT, breaks=True)
@on(OUTPUT, breaks=True)
def rename_a_property(schema: Schema, rng: random.Random) -> bool:
    found = a_property(schema, rng, "string", "integer", "number", "boolean", "array", "object")
    if found is None or f"{found[1]}_renamed" in found[0]["properties"]:
        return False
    each, name = found
    each["properties"][f"{name}_renamed"] = each["properties"].pop(name)
    each["required"] = [f"{name}_renamed" if other == name else other for other in each.get("required", ())]
    return True


@on(INPUT, breaks=True)
def change_a_default(schema: Schema, rng: random.Random) -> bool:
    found = [
        c for each in objects(schema) for c in _properties(each).values() if isinstance(c, dict) and "default" in c
    ]
    if not found:
        return False
    rng.choice(found)["default"] = "quite another default"
    return True


# What takes more values than before: harms nobody as arguments, breaks those who read it as a result.


@on(INPUT, breaks=False)
@on(OUTPUT, breaks=True)
def drop_a_requirement(schema: Schema, rng: random.Random) -> bool:
    found = [each for each in objects(schema) if set(each.get("required", ())) & _properties(each).keys()]
    if not found:
        return False
    each = rng.choice(found)
    gone = rng.choice(sorted(set(each["required"]) & each["properties"].keys()))
    each["required"] = [name for name in each["required"] if name != gone]
    return True


@on(INPUT, breaks=False)
@on(OUTPUT, breaks=True)
def add_a_value(schema: Schema, rng: random.Random) -> bool:
    values = an_enum(schema, rng)
    if values is not None:
        values.append("a value that is new")
    return values is not None


@on(INPUT, breaks=False)
@on(OUTPUT, breaks=True)
def list_no_values(schema: Schema, rng: random.Random) -> bool:
    found = [
        c
        for each in objects(schema)
        for c in _properties(each).values()
        if isinstance(c, dict) and "enum" in c and "type" in c
    ]
    if found:
        del rng.choice(found)["enum"]
    return bool(found)


@on(INPUT, breaks=False)
@on(OUTPUT, breaks=True)
def integer_to_number(schema: Schema, rng: random.Random) -> bool:
    return _change(
        "integer", lambda c: "multipleOf" not in c and c.get("minimum") is None and not c.update(type="number")
    )(schema, rng)


@on(INPUT, breaks=False)
@on(OUTPUT, breaks=True)
def allow_null(schema: Schema, rng: random.Random) -> bool:
    return _change("string integer number boolean array", lambda c: not c.update(type=[c["type"], "null"]))(schema, rng)


@on(INPUT, breaks=False)
@on(OUTPUT, breaks=True)
def allow_another_type_in_a_branch(schema: Schema, rng: random.Random) -> bool:
    found = a_property(schema, rng, "string", "integer", "number", "boolean")
    if found is None:
        return False
    each, name = found
    plain = {key: value for key, value in each["properties"][name].items() if key not in ("description", "default")}
    texts = {key: value for key, value in each["properties"][name].items() if key not in plain}
    each["properties"][name] = {"anyOf": [plain, {"type": "array", "items": plain}]} | texts
    return True


@on(INPUT, breaks=False)
@on(OUTPUT, breaks=True)
def loosen_a_number(schema: Schema, rng: random.Random) -> bool:
    def change(child: Schema) -> bool:
        word = next((word for word in ("minimum", "maximum") if word in child), None)
        if word is None or "exclusiveMinimum" in child or "exclusiveMaximum" in child or "multipleOf" in child:
            return False
        if child.get("minimum", -(10**9)) > child.get("maximum", 10**9):
            return False
        child[word] += -1 if word == "minimum" else 1
        return True

    return _change("number integer", change)(schema, rng)


# What takes the same values: harms nobody.


@on(INPUT, breaks=False)
@on(OUTPUT, breaks=False)
def add_an_optional_property(schema: Schema, rng: random.Random) -> bool:
    each = an_object(schema, rng)
    if each is None or each.get("additionalProperties", False) is not False or "patternProperties" in each:
        return False
    each["properties"]["brand_new"] = {"type": "string", "description": "Something new.", "maxLength": 10}
    return True


@on(INPUT, breaks=False)
@on(OUTPUT, breaks=False)
def reorder_everything(schema: Schema, rng: random.Random) -> bool:
    def reordered(value: Any, keyword: str = "") -> Any:
        if isinstance(value, dict):
            return {key: reordered(value[key], key) for key in sorted(value, key=lambda _: rng.random())}
        return sorted(value) if keyword == "required" and isinstance(value, list) else value

    changed = reordered(schema)
    schema.clear()
    schema.update(changed)
    schema["required"] = [*reversed(schema.get("required", []))]
    return True


@on(INPUT, breaks=False)
@on(OUTPUT, breaks=False)
def move_into_a_definition(schema: Schema, rng: random.Random) -> bool:
    found = a_property(schema, rng, "string", "integer", "number", "boolean", "array")
    if found is None or "$defs" in schema or "definitions" in schema:
        return False
    each, name = found
    word = "definitions" if "draft-0" in str(schema.get("$schema")) else "$defs"
    schema[word] = {"Moved": each["properties"][name]}
    each["properties"][name] = {"$ref": f"#/{word}/Moved"}
    return True


@on(INPUT, breaks=False)
@on(OUTPUT, breaks=False)
def wrap_into_a_branch(schema: Schema, rng: random.Random) -> bool:
    found = a_property(schema, rng, "string", "integer", "number", "boolean")
    if found is None:
        return False
    each, name = found
    plain = each["properties"][name]
    each["properties"][name] = {rng.choice(("anyOf", "allOf", "oneOf")): [plain]} | (
        {"default": plain["default"]} if "default" in plain else {}
    )
    return True


@on(INPUT, breaks=False)
@on(OUTPUT, breaks=False)
def reword(schema: Schema, rng: random.Random) -> bool:
    found = a_property(schema, rng)
    if found is not None:
        found[0]["properties"][found[1]]["description"] = "Said in other words."
    return found is not None
