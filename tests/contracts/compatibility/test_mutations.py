"""Real definitions, changed on purpose: no break is called compatible, and what is safe is not called a break."""

import random
from collections import Counter

import msgspec
import pytest

from tests.contracts.compatibility.definitions import schemas
from tests.contracts.compatibility.mutations import INPUT, OUTPUT, Mutation, Schema, mutated
from toolpost.contracts import Definition, Judgement, judge
from toolpost.contracts.compatibility.projection import close_arguments, open_results
from toolpost.contracts.schema import compile_schema

DEFINITIONS = 150
SEED = 7


def pair(role: str, old: Schema, new: Schema) -> tuple[Definition, Definition]:
    if role == "input":
        return Definition(name="t", input_schema=old), Definition(name="t", input_schema=new)
    return Definition(name="t", output_schema=old), Definition(name="t", output_schema=new)


def judged(role: str, mutation: Mutation) -> list[tuple[Schema, Schema, Judgement]]:
    rng = random.Random(f"{SEED} {role} {mutation.name}")
    found = []
    for schema in schemas(DEFINITIONS, rng):
        changed = mutated(schema, mutation, rng)
        if changed is not None:
            found.append((schema, changed, judge(*pair(role, schema, changed), budget_s=10)))
    return found


EVERY = [*(("input", mutation) for mutation in INPUT), *(("output", mutation) for mutation in OUTPUT)]


@pytest.mark.parametrize(("role", "mutation"), EVERY, ids=[f"{role}-{mutation.name}" for role, mutation in EVERY])
def test_a_mutation_is_judged_as_what_it_is(role: str, mutation: Mutation) -> None:
    found = judged(role, mutation)

    verdicts = Counter(judgement.verdict.value for _, _, judgement in found)
    assert found
    if mutation.breaks:
        assert verdicts == {"breaking": len(found)}
    else:
        assert verdicts["breaking"] <= 0.01 * len(found)
    for old, new, judgement in found:
        check_examples(role, old, new, judgement)


def check_examples(role: str, old: Schema, new: Schema, judgement: Judgement) -> None:
    """Hold every example to the real validator, apart from whoever made it."""
    taken, refused = (
        (close_arguments(old, new), close_arguments(new, old)) if role == "input" else (new, open_results(old))
    )
    for change in judgement.changes:
        if change.example is not msgspec.UNSET:
            assert compile_schema(taken, root_object=False).is_valid(change.example)
            if change.rule == "input.argument-removed":
                # Where the new schema is open, such a call is accepted: then that is what is said.
                is_accepted = compile_schema(new, root_object=False).is_valid(change.example)
                assert is_accepted == change.message.endswith("it is ignored")
            else:
                assert not compile_schema(refused, root_object=False).is_valid(change.example)
