"""Two schemas walked side by side: every place where they differ, and whether the difference can be proven harmless.

What is proven here is proven from the parts: if each condition of the wide schema is implied by the same condition of
the narrow one, it takes all that the narrow one takes. Where parts do not suffice, the validator's algebra is asked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import is_same_json
from toolpost.contracts.compatibility.budget import Budget
from toolpost.contracts.compatibility.containment import Answer, Comparison
from toolpost.contracts.compatibility.languages import FOLLOWED_S
from toolpost.contracts.compatibility.limits import SIMPLE, differing_limits
from toolpost.contracts.compatibility.sides import Node, Side, branches_of, is_match, is_never
from toolpost.contracts.compatibility.texts import NOTES, TEXTS, strip_annotations, without_texts
from toolpost.contracts.references import REFERENCES

Step = tuple[str | int, ...]
"""One step from a schema to one inside it: a keyword, and a name or number below it."""

DEPTH_LIMIT = 60
_STEP_S = 0.000_05

_IGNORED = TEXTS | NOTES | {"$schema", "$id", "id", "$defs", "definitions", "$anchor"}
_SHAPES = frozenset({"properties", "required", "additionalProperties", "items"})
_PLAIN = SIMPLE | _SHAPES | {"$ref"} | _IGNORED
# All else that a validator may look at; a keyword that it does not know asserts nothing.
_COMBINED = frozenset(
    {
        "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "contains", "dependencies", "dependentRequired",
        "dependentSchemas", "else", "if", "maxContains", "minContains", "not", "oneOf", "propertyNames", "then",
        "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
# These mean nothing without each other.
_TOGETHER = (
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
    ("prefixItems", "items", "additionalItems", "unevaluatedItems"),
    ("patternProperties", "properties", "additionalProperties"),
)


@dataclass(kw_only=True)
class Difference:
    """One place where the two differ."""

    kind: str
    """`property-` or `required-` `added` or `removed` (`dropped`); `type`, `values`, `bounds`, `format`; `other`."""
    keyword: str
    old: Node
    new: Node
    steps: tuple[Step, ...]
    answer: Answer
    name: str = ""
    """Of the property, for what is about one."""


def _worst(answers: list[Answer]) -> Answer:
    if Answer.NO in answers:
        return Answer.NO
    return Answer.UNKNOWN if Answer.UNKNOWN in answers else Answer.YES


class Walk:
    """One pass over both schemas. `old_is_narrow`: the new must take what the old took, as for arguments."""

    def __init__(self, old: Side, new: Side, budget: Budget, *, old_is_narrow: bool) -> None:
        self._old, self._new = old, new
        self._budget = budget
        self._old_is_narrow = old_is_narrow
        self._known: dict[tuple[str, str], Answer] = {}
        self._proven: list[tuple[str, str]] = []
        self._underway: dict[tuple[str, str], int] = {}
        self._shaped = 0
        self.differences: list[Difference] = []

    def answer(self) -> Answer:
        """Walk, and say whether the wide schema takes all that the narrow one takes."""
        return self._compare(self._old.root, self._new.root, ())

    def _narrow_wide(self, old: Node, new: Node) -> tuple[JsonObject, JsonObject]:
        return (old.schema, new.schema) if self._old_is_narrow else (new.schema, old.schema)

    def _compare(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Answer:
        if not self._budget.allows(_STEP_S) or len(steps) > DEPTH_LIMIT:
            self._budget.is_cut_short = True
            return Answer.UNKNOWN
        key = (old.place, new.place)
        if key in self._underway:
            # Met again further down the value: what is being proven may be assumed, as long as the value got smaller.
            return Answer.YES if self._shaped > self._underway[key] else Answer.UNKNOWN
        if key in self._known:
            return self._known[key]
        self._underway[key], mark = self._shaped, len(self._proven)
        answer = self._compare_anew(old, new, steps)
        del self._underway[key]
        self._remember(key, answer, mark)
        return answer

    def _remember(self, key: tuple[str, str], answer: Answer, mark: int) -> None:
        if answer is Answer.YES:
            self._proven.append(key)
        else:
            # What was proven on the assumption that this holds is proven no longer.
            for other in self._proven[mark:]:
                self._known.pop(other, None)
            del self._proven[mark:]
        self._known[key] = answer

    def _compare_anew(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Answer:
        if (leads := self._follow(old, new)) is not None:
            return self._compare(*leads, (*steps, ("$ref",)))
        narrow, wide = self._narrow_wide(old, new)
        if is_never(narrow) or not (wide.keys() - _IGNORED):
            if not is_same_json(strip_annotations(old.schema), strip_annotations(new.schema)):
                self._note("other", "", old, new, steps, Answer.YES)
            return Answer.YES
        first = len(self.differences)
        own = [*self._limits(old, new, steps), *self._judge_combinators(old, new, steps)]
        inner = [*self._properties(old, new, steps), *self._items(old, new, steps)]
        answer = _worst([*own, *inner])
        if answer is not Answer.YES and steps and self._is_worth_asking(old, new, own):
            answer = self._ask(old, new, answer, first)
        return answer

    def _note(
        self, kind: str, keyword: str, old: Node, new: Node, steps: tuple[Step, ...], answer: Answer, name: str = ""
    ) -> Answer:
        self.differences.append(
            Difference(kind=kind, keyword=keyword, old=old, new=new, steps=steps, answer=answer, name=name)
        )
        return answer

    # References

    def _follow(self, old: Node, new: Node) -> tuple[Node, Node] | None:
        """Return where a reference leads that stands for the whole schema, on either side or both."""
        one, other = self._lead(self._old, old), self._lead(self._new, new)
        return None if one is None and other is None else (one or old, other or new)

    @staticmethod
    def _lead(side: Side, node: Node) -> Node | None:
        if "$ref" not in node.schema:
            return None
        is_alone = side.draft < 2019 or not (node.schema.keys() - _IGNORED - {"$ref"})
        return side.target(node) if is_alone else None

    # What stands by itself

    def _limits(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Iterator[Answer]:
        narrow, wide = self._narrow_wide(old, new)
        if "pattern" in wide and narrow.get("pattern") != wide["pattern"] and not self._budget.allows(FOLLOWED_S):
            yield self._note("format", "pattern", old, new, steps, Answer.UNKNOWN)
            narrow, wide = ({word: schema[word] for word in schema if word != "pattern"} for schema in (narrow, wide))
        for limit in differing_limits(narrow, wide, draft=self._old.draft):
            yield self._note(limit.kind, limit.keyword, old, new, steps, limit.answer)

    def _judge_combinators(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Iterator[Answer]:
        """Judge branches, conditions and whatever else is neither a limit nor a shape."""
        narrow, wide = self._narrow_wide(old, new)
        for word in sorted((narrow.keys() | wide.keys()) & _COMBINED):
            answer = self._combination(word, old, new, steps)
            if answer is not Answer.YES or not self._is_same(old, new, word):
                yield self._note("other", word, old, new, steps, answer)
        yield from self._judge_extended_references(old, new, steps)

    def _is_same(self, old: Node, new: Node, word: str) -> bool:
        return is_same_json(old.schema.get(word), new.schema.get(word))

    def _combination(self, word: str, old: Node, new: Node, steps: tuple[Step, ...]) -> Answer:
        narrow, wide = self._narrow_wide(old, new)
        if word.startswith("unevaluated"):
            # What is evaluated is for all other keywords to say: nothing is known of this one alone.
            return Answer.YES if word not in wide or self._are_same(narrow, wide) else Answer.UNKNOWN
        if word not in wide and word not in ("then", "else", "minContains", "maxContains"):
            return Answer.YES
        if self._is_settled(word, narrow, wide):
            return Answer.YES
        if word in ("anyOf", "allOf", "oneOf"):
            return self._branches(word, old, new, steps)
        return Answer.UNKNOWN

    @property
    def _refers(self) -> bool:
        return self._old.refers or self._new.refers

    def _are_same(self, narrow: JsonObject, wide: JsonObject) -> bool:
        """Say whether two schemas assert the same word for word; one that refers to others may not."""
        some, others = (
            without_texts({key: value for key, value in schema.items() if key not in _IGNORED})[0]
            for schema in (narrow, wide)
        )
        return is_same_json(some, others) and not (self._refers and _mentions_reference(some))

    def _is_settled(self, word: str, narrow: JsonObject, wide: JsonObject) -> bool:
        """Say whether a keyword and those that belong to it are the same on both sides."""
        group = next((words for words in _TOGETHER if word in words), (word,))
        some, others = ({key: schema[key] for key in group if key in schema} for schema in (narrow, wide))
        return self._are_same(some, others)

    def _branches(self, word: str, old: Node, new: Node, steps: tuple[Step, ...]) -> Answer:
        some, others = list(branches_of(old, word)), list(branches_of(new, word))
        if word == "oneOf" or not some or not others:
            return Answer.UNKNOWN
        narrow, wide = (some, others) if self._old_is_narrow else (others, some)
        # Any: each way that the narrow one takes is within one of the wide one's. All: the other way round.
        asked, offered = (narrow, wide) if word == "anyOf" else (wide, narrow)
        for one in asked:
            if not any(self._is_within(one, other, word, steps) for other in offered):
                return Answer.UNKNOWN
        return Answer.YES

    def _is_within(self, asked: Node, offered: Node, word: str, steps: tuple[Step, ...]) -> bool:
        narrow, wide = (asked, offered) if word == "anyOf" else (offered, asked)
        old, new = (narrow, wide) if self._old_is_narrow else (wide, narrow)
        silent = len(self.differences)
        answer = self._compare(old, new, (*steps, (word, 0)))
        del self.differences[silent:]
        return answer is Answer.YES

    def _judge_extended_references(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Iterator[Answer]:
        """Judge references that have more of the same value described beside them."""
        narrow, wide = self._narrow_wide(old, new)
        if "$ref" not in narrow and "$ref" not in wide:
            return
        if "$ref" not in wide:
            yield self._note("other", "$ref", old, new, steps, Answer.YES)
            return
        one, other = self._old.target(old), self._new.target(new)
        if one is not None and other is not None:
            yield self._compare(one, other, (*steps, ("$ref",)))
        else:
            yield self._note("other", "$ref", old, new, steps, Answer.UNKNOWN)

    # Shapes

    def _properties(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Iterator[Answer]:
        if "object" not in _types(self._narrow_wide(old, new)[0]):
            return
        yield from self._judge_required(old, new, steps)
        self._shaped += 1
        some, others = _properties_by_name(old), _properties_by_name(new)
        if not (have_same_patterns := _properties_by_pattern(old).keys() == _properties_by_pattern(new).keys()):
            yield self._note("other", "patternProperties", old, new, steps, Answer.UNKNOWN)
        for pattern, one in _properties_by_pattern(old).items() if have_same_patterns else ():
            yield self._compare(one, _properties_by_pattern(new)[pattern], (*steps, ("patternProperties", pattern)))
        for name in (*some, *(name for name in others if name not in some)):
            yield self._property(name, (old, some.get(name)), (new, others.get(name)), steps)
        yield self._compare(_additional(old), _additional(new), (*steps, ("additionalProperties",)))
        self._shaped -= 1

    def _property(
        self, name: str, old: tuple[Node, Node | None], new: tuple[Node, Node | None], steps: tuple[Step, ...]
    ) -> Answer:
        (around_old, some), (around_new, other) = old, new
        inner = (*steps, ("properties", name))
        if some is not None and other is not None:
            return self._compare(some, other, inner)
        silent = len(self.differences)
        answer = self._compare(some or _outside(around_old, name), other or _outside(around_new, name), inner)
        del self.differences[silent:]
        kind = "property-added" if some is None else "property-removed"
        return self._note(kind, "properties", around_old, around_new, steps, answer, name)

    def _judge_required(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Iterator[Answer]:
        some, others = _required_names(old.schema), _required_names(new.schema)
        for name in others - some:
            answer = Answer.NO if self._old_is_narrow else Answer.YES
            yield self._note("required-added", "required", old, new, steps, answer, name)
        for name in some - others:
            answer = Answer.YES if self._old_is_narrow else Answer.NO
            yield self._note("required-dropped", "required", old, new, steps, answer, name)

    def _items(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Iterator[Answer]:
        words = ("items", "prefixItems", "additionalItems")
        narrow, wide = self._narrow_wide(old, new)
        if "array" not in _types(narrow) or not any(word in schema for word in words for schema in (narrow, wide)):
            return
        one, other = old.schema.get("items", True), new.schema.get("items", True)
        has_more = any(word in schema for word in words[1:] for schema in (narrow, wide))
        if has_more or isinstance(one, list) or isinstance(other, list):
            if not self._is_settled("prefixItems", narrow, wide):
                yield self._note("other", "items", old, new, steps, Answer.UNKNOWN)
            return
        self._shaped += 1
        yield self._compare(old.child("/items", one), new.child("/items", other), (*steps, ("items",)))
        self._shaped -= 1

    # What the parts do not prove

    @staticmethod
    def _is_worth_asking(old: Node, new: Node, own: list[Answer]) -> bool:
        words = old.schema.keys() | new.schema.keys()
        return Answer.UNKNOWN in own or bool(words - _PLAIN or words & {"enum", "const", "$ref"})

    def _ask(self, old: Node, new: Node, answer: Answer, first: int) -> Answer:
        one, other = self._old.cut_out(old), self._new.cut_out(new)
        if one is None or other is None:
            return answer
        narrow, wide = (one, other) if self._old_is_narrow else (other, one)
        asked = Comparison(narrow, wide, self._budget).answer()
        if asked is Answer.YES:
            for difference in self.differences[first:]:
                difference.answer = Answer.YES
        return asked if asked is not Answer.UNKNOWN else answer


def _mentions_reference(value: Json) -> bool:
    if isinstance(value, dict):
        return not value.keys().isdisjoint(REFERENCES) or any(_mentions_reference(inner) for inner in value.values())
    return isinstance(value, list) and any(_mentions_reference(inner) for inner in value)


def _types(schema: JsonObject) -> Json:
    named = schema.get("type", ("object", "array"))
    return (named,) if isinstance(named, str) else named


def _properties_by_name(node: Node) -> dict[str, Node]:
    properties = node.schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {name: node.child(f"/properties/{_escape(name)}", child) for name, child in properties.items()}


def _properties_by_pattern(node: Node) -> dict[str, Node]:
    patterns = node.schema.get("patternProperties")
    if not isinstance(patterns, Mapping):
        return {}
    return {name: node.child(f"/patternProperties/{_escape(name)}", child) for name, child in patterns.items()}


def _outside(node: Node, name: str) -> Node:
    """Return what is asked of a property that is not declared, apart from the patterns that its name matches."""
    if any(is_match(pattern, name) for pattern in node.schema.get("patternProperties") or ()):
        return node.child("/patternProperties", True)
    return _additional(node)


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _additional(node: Node) -> Node:
    return node.child("/additionalProperties", node.schema.get("additionalProperties", True))


def _required_names(schema: JsonObject) -> set[str]:
    names = schema.get("required")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
