"""The validating process: `python -m toolpost.upstreams.validation.process`. `pool` is the other end.

It reads requests from stdin until that ends: a head (a kind and two lengths) and two JSON texts. Each answer on stdout is a
length and a JSON text.

- `v`, a schema and a value: whether the value is valid; if not, a second answer lists its issues.
- `j`, an old and a new definition: the judgement on the change.
"""

import struct
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from toolpost.base.ids import Json
from toolpost.contracts.issues import find_issues
from toolpost.contracts.schema import Schema, compile_schema

HEAD: Final = struct.Struct(">cII")
VALIDATE: Final = b"v"
JUDGE: Final = b"j"
LENGTH: Final = struct.Struct(">I")


def main() -> None:
    # Imported here: the gateway imports this module too, and limits nothing.
    from toolpost.processes import limit_resources

    limit_resources()
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while len(head := requests.read(HEAD.size)) == HEAD.size:
        kind, first_bytes, second_bytes = HEAD.unpack(head)
        handle = _validate if kind == VALIDATE else _judge_pair
        for answer in handle(requests.read(first_bytes), requests.read(second_bytes)):
            encoded = msgspec.json.encode(answer)
            answers.write(LENGTH.pack(len(encoded)) + encoded)
            answers.flush()


def _validate(raw: bytes, encoded: bytes) -> Iterator[Json]:
    schema, value = _compile_schema(raw), msgspec.json.decode(encoded)
    try:
        is_valid = schema.is_valid(value)
    except ValueError:
        is_valid = False  # The validator cannot read it; the issues say why.
    yield is_valid
    if not is_valid:
        yield [issue.as_object() for issue in find_issues(schema, value)]


def _judge_pair(old: bytes, new: bytes) -> Iterator[Json]:
    # Imported here: most of these processes only validate, and start faster without it.
    from toolpost.contracts.compatibility import Definition, judge

    yield judge(msgspec.json.decode(old, type=Definition), msgspec.json.decode(new, type=Definition))


@lru_cache(maxsize=32)
def _compile_schema(raw: bytes) -> Schema:
    return compile_schema(msgspec.json.decode(raw), root_object=False)


if __name__ == "__main__":
    main()
