"""The process that does what may take long: `python -m toolpost.upstreams.validation.process`.

It reads from stdin, until that ends, a head (what is asked, and two lengths) and two pieces of JSON. Each answer on stdout is a
length and JSON. `validation` is the other end.

- `v`, a schema and a value: whether the value is valid, and then, if it is not, what is wrong with it.
- `j`, an old and a new definition: the judgement on the change.
"""

import os
import struct
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from toolpost.base.ids import Json
from toolpost.contracts.issues import faults_in
from toolpost.contracts.schema import Schema, compile_schema

HEAD: Final = struct.Struct(">cII")
VALIDATE: Final = b"v"
JUDGE: Final = b"j"
LENGTH: Final = struct.Struct(">I")
MEMORY_LIMIT_BYTES: Final = 4 * 1024**3
"""Of address space: an explanation may hold each of thousands of branches."""


def main() -> None:
    """Answer what is asked, one after the other."""
    _limit_resources()
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    while len(head := asked.read(HEAD.size)) == HEAD.size:
        kind, first_bytes, second_bytes = HEAD.unpack(head)
        answer_all = _validate if kind == VALIDATE else _judge_pair
        for answer in answer_all(asked.read(first_bytes), asked.read(second_bytes)):
            encoded = msgspec.json.encode(answer)
            answers.write(LENGTH.pack(len(encoded)) + encoded)
            answers.flush()


def _validate(raw: bytes, encoded: bytes) -> Iterator[Json]:
    schema, value = _compile_schema(raw), msgspec.json.decode(encoded)
    try:
        is_valid = schema.is_valid(value)
    except ValueError:
        is_valid = False  # Not even readable: that is explained too.
    yield is_valid
    if not is_valid:
        yield [fault.as_object() for fault in faults_in(schema, value)]


def _judge_pair(old: bytes, new: bytes) -> Iterator[Json]:
    # Most of these processes validate, and need nothing of what a judge needs.
    from toolpost.contracts.compatibility import Definition, judge

    yield judge(msgspec.json.decode(old, type=Definition), msgspec.json.decode(new, type=Definition))


@lru_cache(maxsize=32)
def _compile_schema(raw: bytes) -> Schema:
    return compile_schema(msgspec.json.decode(raw), root_object=False)


def _limit_resources() -> None:
    """Leave the processor to whoever needs it, and the memory to everybody."""
    if sys.platform == "win32":
        return
    import resource

    os.nice(5)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_LIMIT_BYTES if most == resource.RLIM_INFINITY else min(most, MEMORY_LIMIT_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))


if __name__ == "__main__":
    main()
