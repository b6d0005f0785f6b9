"""Two schemas compared part by part: every difference, and whether it can be proven harmless.

The proof is by implication: if each keyword of the wide schema is implied by the same keyword of the narrow one, the wide schema
accepts everything that the narrow one accepts. Where that does not suffice, the validator's algebra is asked. Recursive schemas
are proven by induction: a pair that occurs again further down in the value is assumed to hold while it is being proven.

For example, arguments `{"properties": {"n": {"maximum": 10}}}` become `{"properties": {"n": {"maximum": 20}}}`. The walk compares
the roots, then the schemas of `n`, where `maximum` 10 implies `maximum` 20: one difference of the kind `bounds`, proven harmless.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from toolpost.base.ids import Json, JsonObject
from toolpost.base.values import is_same_json
from toolpost.contracts.compatibility.containment import (
    ComparedSchema,
    Comparison,
    Containment,
    Node,
    branches_of,
    is_never,
    matches,
)
from toolpost.contracts.compatibility.cost import Budget
from toolpost.contracts.compatibility.keywords import SIMPLE_KEYWORDS, compare_keywords
from toolpost.contracts.compatibility.regex import SEARCH_COST_S
from toolpost.contracts.document import (
    ANNOTATION_KEYWORDS,
    REFERENCES,
    TEXT_KEYWORDS,
    split_texts,
    strip_annotations,
    to_pointer,
)

Step = tuple[str | int, ...]
"""One step from a schema to one inside it: a keyword, and a name or number below it."""

DEPTH_LIMIT = 60
_STEP_S = 0.000_05

_IGNORED = TEXT_KEYWORDS | ANNOTATION_KEYWORDS | {"$schema", "$id", "id", "$defs", "definitions", "$anchor"}
_PART_KEYWORDS = frozenset({"properties", "required", "additionalProperties", "items"})
_WITHOUT_ALGEBRA = SIMPLE_KEYWORDS | _PART_KEYWORDS | {"$ref"} | _IGNORED
# The remaining keywords that a validator looks at; an unknown keyword asserts nothing.
_COMBINATORS = frozenset(
    {
        "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "contains", "dependencies", "dependentRequired",
        "dependentSchemas", "else", "if", "maxContains", "minContains", "not", "oneOf", "propertyNames", "then",
        "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
# Keywords beside which `unevaluatedProperties` may mean something else than `additionalProperties`.
_EVALUATING = frozenset(
    {
        "$dynamicRef", "$recursiveRef", "$ref", "additionalProperties", "allOf", "anyOf", "dependencies",
        "dependentSchemas", "else", "if", "not", "oneOf", "then",
    }
)  # fmt: skip
# Keywords that depend on each other.
_DEPENDENT_GROUPS = (
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
    ("prefixItems", "items", "additionalItems", "unevaluatedItems"),
    ("patternProperties", "properties", "additionalProperties"),
)


@dataclass(kw_only=True)
class Difference:
    """One place where the two schemas differ."""

    kind: str
    """`property-` or `required-` `added` or `removed` (`dropped`); `type`, `values`, `bounds`, `format`; `other`."""
    keyword: str
    old: Node
    new: Node
    steps: tuple[Step, ...]
    containment: Containment
    name: str = ""
    """The name of the property, for differences about one."""


class SchemaWalk:
    """One pass over both schemas. With `old_is_narrow` the new one must accept what the old one accepted, as for arguments."""

    def __init__(self, old: ComparedSchema, new: ComparedSchema, budget: Budget, *, old_is_narrow: bool) -> None:
        self._old, self._new = old, new
        self._budget = budget
        self._old_is_narrow = old_is_narrow
        # Keys are pairs of places. Each pair is compared once; without that, shared definitions would be compared
        # once for each path that leads to them.
        self._known: dict[tuple[str, str], Containment] = {}
        self._proven: list[tuple[str, str]] = []
        """The pairs proven so far, in order, so that those that relied on a failed assumption can be dropped."""
        self._in_progress: dict[tuple[str, str], int] = {}
        """The pairs being compared, with the depth in the value at which each was begun."""
        self._depth = 0
        """How deep in the value the present pair applies: `properties` and `items` add one, references and branches none."""
        self.differences: list[Difference] = []

    def run(self) -> Containment:
        """Walk, collect `differences`, and return whether the wide schema contains the narrow one."""
        return self._compare(self._old.root, self._new.root, ())

    def _narrow_wide(self, old: Node, new: Node) -> tuple[JsonObject, JsonObject]:
        return (old.schema, new.schema) if self._old_is_narrow else (new.schema, old.schema)

    def _compare(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Containment:
        if not self._budget.spend(_STEP_S) or len(steps) > DEPTH_LIMIT:
            self._budget.is_cut_short = True
            return Containment.UNKNOWN
        key = (old.place, new.place)
        if key in self._in_progress:
            # Induction: what is being proven may be assumed for a smaller value, and only for a smaller one.
            return Containment.YES if self._depth > self._in_progress[key] else Containment.UNKNOWN
        if key in self._known:
            return self._known[key]
        self._in_progress[key], mark = self._depth, len(self._proven)
        answer = self._compare_uncached(old, new, steps)
        del self._in_progress[key]
        if answer is Containment.YES:
            self._proven.append(key)
        else:
            # The proofs since `mark` assumed that this one holds.
            for other in self._proven[mark:]:
                self._known.pop(other, None)
            del self._proven[mark:]
        self._known[key] = answer
        return answer

    def _compare_uncached(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Containment:
        # References that stand for the whole schema, on either side or both.
        old_target, new_target = self._follow_alone(self._old, old), self._follow_alone(self._new, new)
        if old_target is not None or new_target is not None:
            return self._compare(old_target or old, new_target or new, (*steps, ("$ref",)))
        narrow, wide = self._narrow_wide(old, new)
        if is_never(narrow) or not (wide.keys() - _IGNORED):
            if not is_same_json(strip_annotations(old.schema), strip_annotations(new.schema)):
                self._record("other", "", old, new, steps, Containment.YES)
            return Containment.YES
        first = len(self.differences)
        own = [*self._compare_keywords(old, new, steps), *self._compare_combinators(old, new, steps)]
        inner = [*self._compare_properties(old, new, steps), *self._compare_items(old, new, steps)]
        answers = {*own, *inner}
        if not answers - {Containment.YES}:
            return Containment.YES
        answer = Containment.NO if Containment.NO in answers else Containment.UNKNOWN
        # Only where keywords compared one by one say less than the schema as a whole; and not at the root: there the caller asks
        # the algebra itself, for both whole schemas.
        words = old.schema.keys() | new.schema.keys()
        is_worth_asking = Containment.UNKNOWN in own or words - _WITHOUT_ALGEBRA or words & {"enum", "const", "$ref"}
        return self._ask_algebra(old, new, answer, first) if steps and is_worth_asking else answer

    def _record(
        self,
        kind: str,
        keyword: str,
        old: Node,
        new: Node,
        steps: tuple[Step, ...],
        answer: Containment,
        name: str = "",
    ) -> Containment:
        self.differences.append(
            Difference(kind=kind, keyword=keyword, old=old, new=new, steps=steps, containment=answer, name=name)
        )
        return answer

    # References

    @staticmethod
    def _follow_alone(side: ComparedSchema, node: Node) -> Node | None:
        if "$ref" not in node.schema:
            return None
        # Before 2019-09 a reference hides every keyword beside it.
        is_alone = side.draft < 2019 or not (node.schema.keys() - _IGNORED - {"$ref"})
        return side.follow_reference(node) if is_alone else None

    # Keywords

    def _compare_keywords(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Iterator[Containment]:
        narrow, wide = self._narrow_wide(old, new)
        if "pattern" in wide and narrow.get("pattern") != wide["pattern"] and not self._budget.spend(SEARCH_COST_S):
            yield self._record("format", "pattern", old, new, steps, Containment.UNKNOWN)
            narrow, wide = ({word: schema[word] for word in schema if word != "pattern"} for schema in (narrow, wide))
        for found in compare_keywords(narrow, wide, draft=self._old.draft):
            yield self._record(found.kind, found.keyword, old, new, steps, found.containment)

    def _compare_combinators(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Iterator[Containment]:
        """Compare branches, conditions and all other keywords that are neither simple nor about parts of the value."""
        narrow, wide = self._narrow_wide(old, new)
        for word in sorted((narrow.keys() | wide.keys()) & _COMBINATORS):
            answer = self._compare_combinator(word, old, new, steps)
            is_same = is_same_json(old.schema.get(word), new.schema.get(word))
            if answer is not Containment.YES or not is_same:
                yield self._record("other", word, old, new, steps, answer)
        yield from self._compare_extended_references(old, new, steps)

    def _compare_combinator(self, word: str, old: Node, new: Node, steps: tuple[Step, ...]) -> Containment:
        narrow, wide = self._narrow_wide(old, new)
        if word == "unevaluatedProperties" and self._closer_of(wide) == word:
            return Containment.YES  # compared with the properties
        if word.startswith("unevaluated"):
            # Depends on what all other keywords evaluate: nothing is known of this keyword alone.
            # Simple keywords evaluate nothing.
            some, others = (
                {key: schema[key] for key in schema if key not in SIMPLE_KEYWORDS} for schema in (narrow, wide)
            )
            return Containment.YES if word not in wide or self._are_same(some, others) else Containment.UNKNOWN
        if word not in wide and word not in ("then", "else", "minContains", "maxContains"):
            return Containment.YES
        if self._is_unchanged(word, narrow, wide):
            return Containment.YES
        if word in ("anyOf", "allOf", "oneOf"):
            return self._compare_branches(word, old, new, steps)
        return Containment.UNKNOWN

    def _are_same(self, narrow: JsonObject, wide: JsonObject) -> bool:
        """Return whether two schemas are equal and refer to no others; those they refer to may differ."""
        narrow_values, wide_values = (
            split_texts({key: value for key, value in schema.items() if key not in _IGNORED})[0]
            for schema in (narrow, wide)
        )
        has_references = self._old.has_references or self._new.has_references
        return is_same_json(narrow_values, wide_values) and not (has_references and _mentions_reference(narrow_values))

    def _is_unchanged(self, word: str, narrow: JsonObject, wide: JsonObject) -> bool:
        """Return whether a keyword and those that depend on it are the same on both sides."""
        group = next((words for words in _DEPENDENT_GROUPS if word in words), (word,))
        narrow_values, wide_values = ({key: schema[key] for key in group if key in schema} for schema in (narrow, wide))
        return self._are_same(narrow_values, wide_values)

    def _compare_branches(self, word: str, old: Node, new: Node, steps: tuple[Step, ...]) -> Containment:
        old_branches, new_branches = list(branches_of(old, word)), list(branches_of(new, word))
        if word == "oneOf" or not old_branches or not new_branches:
            return Containment.UNKNOWN
        narrow, wide = (old_branches, new_branches) if self._old_is_narrow else (new_branches, old_branches)
        # anyOf: each narrow branch must be within some wide branch. allOf: each wide branch must contain some narrow branch.
        needed, candidates = (narrow, wide) if word == "anyOf" else (wide, narrow)
        # Whether the branches that are needed are those of the old schema: narrow and wide may be either side, twice over.
        is_old_needed = (word == "anyOf") == self._old_is_narrow

        def is_matched(branch: Node, candidate: Node) -> bool:
            pair = (branch, candidate) if is_old_needed else (candidate, branch)
            # A branch is tried against several: the differences from those that do not fit are not reported.
            before = len(self.differences)
            answer = self._compare(*pair, (*steps, (word, 0)))
            del self.differences[before:]
            return answer is Containment.YES

        is_proven = all(any(is_matched(branch, candidate) for candidate in candidates) for branch in needed)
        return Containment.YES if is_proven else Containment.UNKNOWN

    def _compare_extended_references(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Iterator[Containment]:
        """Compare references that have other assertions beside them."""
        narrow, wide = self._narrow_wide(old, new)
        if "$ref" not in narrow and "$ref" not in wide:
            return
        if "$ref" not in wide:
            yield self._record("other", "$ref", old, new, steps, Containment.YES)
            return
        old_target, new_target = self._old.follow_reference(old), self._new.follow_reference(new)
        if old_target is not None and new_target is not None:
            yield self._compare(old_target, new_target, (*steps, ("$ref",)))
        else:
            yield self._record("other", "$ref", old, new, steps, Containment.UNKNOWN)

    # Parts of the value

    def _compare_properties(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Iterator[Containment]:
        if "object" not in _types(self._narrow_wide(old, new)[0]):
            return
        yield from self._compare_required(old, new, steps)
        self._depth += 1
        old_properties, new_properties = (_named_schemas(node, "properties") for node in (old, new))
        old_patterns, new_patterns = (_named_schemas(node, "patternProperties") for node in (old, new))
        if old_patterns.keys() == new_patterns.keys():
            for pattern, schema in old_patterns.items():
                yield self._compare(schema, new_patterns[pattern], (*steps, ("patternProperties", pattern)))
        else:
            yield self._record("other", "patternProperties", old, new, steps, Containment.UNKNOWN)
        for name in (*old_properties, *(name for name in new_properties if name not in old_properties)):
            yield self._compare_property(name, (old, old_properties.get(name)), (new, new_properties.get(name)), steps)
        yield self._compare(self._additional_of(old), self._additional_of(new), (*steps, ("additionalProperties",)))
        self._depth -= 1

    def _compare_property(
        self, name: str, old: tuple[Node, Node | None], new: tuple[Node, Node | None], steps: tuple[Step, ...]
    ) -> Containment:
        (around_old, old_property), (around_new, new_property) = old, new
        inner = (*steps, ("properties", name))
        if old_property is not None and new_property is not None:
            return self._compare(old_property, new_property, inner)
        # Reported as one added or removed property, not with each difference between it and `additionalProperties`.
        before = len(self.differences)
        answer = self._compare(
            old_property or self._undeclared_of(around_old, name, is_narrow=self._old_is_narrow),
            new_property or self._undeclared_of(around_new, name, is_narrow=not self._old_is_narrow),
            inner,
        )
        del self.differences[before:]
        kind = "property-added" if old_property is None else "property-removed"
        return self._record(kind, "properties", around_old, around_new, steps, answer, name)

    def _undeclared_of(self, node: Node, name: str, *, is_narrow: bool) -> Node:
        """Return the schema of an undeclared property, by the patterns that its name matches."""
        patterns = _named_schemas(node, "patternProperties")
        matched = [schema for pattern, schema in patterns.items() if matches(pattern, name)]
        if not matched:
            return self._additional_of(node)
        if not is_narrow:
            # The wide patterns are compared with the narrow ones: nothing else is asked of the property.
            return node.child("/patternProperties", True)
        return (
            matched[0]
            if len(matched) == 1
            else node.child("/patternProperties", {"allOf": [each.schema for each in matched]})
        )

    def _additional_of(self, node: Node) -> Node:
        word = self._closer_of(node.schema)
        return node.child(f"/{word}", node.schema.get(word, True))

    def _closer_of(self, schema: JsonObject) -> str:
        """Return the keyword for undeclared properties; where nothing else evaluates any, both mean the same."""
        is_known = min(self._old.draft, self._new.draft) >= 2019
        is_alone = "unevaluatedProperties" in schema and schema.keys().isdisjoint(_EVALUATING)
        return "unevaluatedProperties" if is_known and is_alone else "additionalProperties"

    def _compare_required(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Iterator[Containment]:
        old_names, new_names = _required_names(old.schema), _required_names(new.schema)
        for name in sorted(new_names - old_names):
            answer = Containment.NO if self._old_is_narrow else Containment.YES
            yield self._record("required-added", "required", old, new, steps, answer, name)
        for name in sorted(old_names - new_names):
            answer = Containment.YES if self._old_is_narrow else Containment.NO
            yield self._record("required-dropped", "required", old, new, steps, answer, name)

    def _compare_items(self, old: Node, new: Node, steps: tuple[Step, ...]) -> Iterator[Containment]:
        words = ("items", "prefixItems", "additionalItems")
        narrow, wide = self._narrow_wide(old, new)
        if "array" not in _types(narrow) or not any(word in schema for word in words for schema in (narrow, wide)):
            return
        old_items, new_items = old.schema.get("items", True), new.schema.get("items", True)
        has_more = any(word in schema for word in words[1:] for schema in (narrow, wide))
        if has_more or isinstance(old_items, list) or isinstance(new_items, list):
            if not self._is_unchanged("prefixItems", narrow, wide):
                yield self._record("other", "items", old, new, steps, Containment.UNKNOWN)
            return
        self._depth += 1
        yield self._compare(old.child("/items", old_items), new.child("/items", new_items), (*steps, ("items",)))
        self._depth -= 1

    # The validator's algebra

    def _ask_algebra(self, old: Node, new: Node, answer: Containment, first: int) -> Containment:
        """Compare a pair as a whole; a proof settles its differences, those from index `first` on."""
        old_document, new_document = self._old.extract(old), self._new.extract(new)
        if old_document is None or new_document is None:
            return answer
        narrow, wide = (old_document, new_document) if self._old_is_narrow else (new_document, old_document)
        decided = Comparison(narrow, wide, self._budget).decide()
        if decided is Containment.YES:
            for difference in self.differences[first:]:
                difference.containment = Containment.YES
        return decided if decided is not Containment.UNKNOWN else answer


def _mentions_reference(value: Json) -> bool:
    if isinstance(value, dict):
        return not value.keys().isdisjoint(REFERENCES) or any(_mentions_reference(inner) for inner in value.values())
    return isinstance(value, list) and any(_mentions_reference(inner) for inner in value)


def _types(schema: JsonObject) -> Json:
    named = schema.get("type", ("object", "array"))
    return (named,) if isinstance(named, str) else named


def _named_schemas(node: Node, keyword: str) -> dict[str, Node]:
    named = node.schema.get(keyword)
    if not isinstance(named, dict):
        return {}
    return {name: node.child(to_pointer((keyword, name)), child) for name, child in named.items()}


def _required_names(schema: JsonObject) -> set[str]:
    names = schema.get("required")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
