"""What a validator may take long for is done in processes that can be ended, by turns."""

import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import anyio
import psutil
import pytest

from tests.hostile.schemas import RECURSIVE, SLOW, SLOW_VALUES
from tests.waiting import until
from toolpost.contracts.compatibility import Definition, judge
from toolpost.contracts.errors import QueueOverloaded, ToolFailed
from toolpost.contracts.issues import find_issues
from toolpost.contracts.schema import Schema, compile_schema
from toolpost.upstreams.validation import pool as validation
from toolpost.upstreams.validation.pool import Validators

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

WRONG = {"a": {"c": {"d": 1}}, "b": 1}


def compiled(raw: Any) -> Schema:
    return compile_schema(raw, root_object=True)


def processes() -> list[int]:
    children = psutil.Process().children(recursive=True)
    return [child.pid for child in children if "toolpost.upstreams.validation.process" in _line(child)]


def _line(process: psutil.Process) -> str:
    try:
        # A reaper has the command that it watches in its own line, behind its own.
        line = process.cmdline()
        return " ".join(line) if line[1:2] == ["-P"] else ""
    except psutil.Error:
        return ""


@pytest.fixture
async def validators() -> AsyncIterator[Validators]:
    validators = Validators()
    async with validators.open_running():
        yield validators
    assert not processes()


async def test_faults_are_those_that_are_found_at_once(validators: Validators) -> None:
    schema = compiled(RECURSIVE["unevaluated-at-each-level"] | {"additionalProperties": False})

    assert await validators.find_issues(schema, json.dumps(WRONG).encode(), provider="s") == find_issues(schema, WRONG)
    assert await validators.find_issues(schema, b'{"a": {}}', provider="s") == []
    assert len(processes()) == 1


async def test_a_judgement_is_the_same_elsewhere(validators: Validators) -> None:
    old = Definition(
        name="t", description="one", input_schema={"type": "object", "properties": {"a": {"type": "string"}}}
    )
    new = Definition(
        name="t", description="two", input_schema={"type": "object", "properties": {"a": {"type": "null"}}}
    )

    judged = await validators.judge(old, new, provider="s")

    assert json.dumps(judged.to_json()) == json.dumps(judge(old, new).to_json())


async def test_a_process_that_dies_fails_what_it_was_at_and_nothing_else(validators: Validators) -> None:
    slow, value = compiled(SLOW["objects-denied"]), json.dumps(SLOW_VALUES["objects-denied"]).encode()

    async def kill() -> None:
        await until(processes)
        os.kill(processes()[0], signal.SIGKILL)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kill)
        with pytest.raises(ToolFailed, match="could not be validated"):
            await validators.find_issues(slow, value, provider="s")

    assert await validators.find_issues(compiled({"type": "object"}), b"{}", provider="s") == []


async def test_a_process_that_was_killed_while_it_was_idle_fails_nothing(validators: Validators) -> None:
    schema = compiled({"type": "object"})
    await validators.find_issues(schema, b"{}", provider="files")
    (pid,) = processes()
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not processes())
    await until(lambda: validators._free[0].is_over)

    assert await validators.find_issues(schema, b"{}", provider="files") == []


async def test_a_source_has_one_process_at_a_time_and_others_do_not_wait_for_it(validators: Validators) -> None:
    slow, value = compiled(SLOW["objects-denied"]), json.dumps(SLOW_VALUES["objects-denied"]).encode()

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(lambda: validators.find_issues(slow, value, provider="greedy"))
        await until(processes)
        assert await validators.find_issues(compiled({"type": "object"}), b"{}", provider="other") == []
        assert len(processes()) <= 2
        tasks.cancel_scope.cancel()

    await until(lambda: len(processes()) <= 1)


async def test_too_many_that_wait_are_refused(validators: Validators, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "WAITING", 0)

    with pytest.raises(QueueOverloaded) as refusal:
        await validators.find_issues(compiled({"type": "object"}), b"{}", provider="s")

    assert refusal.value.details["retryAfterMs"] == 1_000
