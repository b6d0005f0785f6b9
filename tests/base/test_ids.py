"""Ids are unique across processes, however those are started."""

import os
import sys

import pytest

from toolpost.base.ids import new_call_id, new_trace_id


@pytest.mark.wire
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_a_forked_process_makes_other_ids() -> None:
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writes, f"{new_call_id()} {new_trace_id()}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        theirs = pipe.read().split()
    ours = [new_call_id(), new_trace_id()]

    assert len(theirs) == 2
    assert not set(ours) & set(theirs)
    assert ours[0].partition("-")[0] != theirs[0].partition("-")[0]
