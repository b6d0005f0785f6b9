"""The process that validates what may take long: `python -m toolpost.upstreams.validation_process`.

It reads from stdin, until that ends, a head of two lengths, a schema and a value, both JSON. It writes to stdout first whether
the value is valid, and then, if it is not, what is wrong with it; each as a length and JSON. `validation` is the other end.
"""

import os
import struct
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from toolpost.contracts.faults import faults_in
from toolpost.contracts.ids import Json
from toolpost.contracts.schema import Schema, compile_schema

HEAD: Final = struct.Struct(">II")
LENGTH: Final = struct.Struct(">I")
MEMORY_LIMIT_BYTES: Final = 4 * 1024**3
"""Of address space: an explanation may hold each of thousands of branches."""


def main() -> None:
    """Answer what is asked, one after the other."""
    _be_modest()
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    while len(head := asked.read(HEAD.size)) == HEAD.size:
        schema_bytes, value_bytes = HEAD.unpack(head)
        schema = _compiled(asked.read(schema_bytes))
        value = msgspec.json.decode(asked.read(value_bytes))
        for answer in _answers(schema, value):
            encoded = msgspec.json.encode(answer)
            answers.write(LENGTH.pack(len(encoded)) + encoded)
            answers.flush()


def _answers(schema: Schema, value: Json) -> Iterator[Json]:
    try:
        is_valid = schema.is_valid(value)
    except ValueError:
        is_valid = False  # Not even readable: that is explained too.
    yield is_valid
    if not is_valid:
        yield [fault.as_object() for fault in faults_in(schema, value)]


@lru_cache(maxsize=32)
def _compiled(raw: bytes) -> Schema:
    return compile_schema(msgspec.json.decode(raw), root_object=False)


def _be_modest() -> None:
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
