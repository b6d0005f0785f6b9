"""A server's own result on its way through: checked against its own schema, and otherwise left as it came."""

import logging
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from toolpost.base.events import event
from toolpost.base.ids import Json
from toolpost.contracts.errors import InvalidResult
from toolpost.middleware.call import Call
from toolpost.middleware.interface import Outcome
from toolpost.middleware.validate import Validation
from toolpost.protocol.shape import BadShape, decode
from toolpost.providers.input_required import is_input_required

_log = logging.getLogger("toolpost.results")
_encode = msgspec.json.Encoder().encode
_NOTHING = msgspec.Raw(b"null")

VALUE_LIMIT: Final = 100_000
"""How many values a result may hold that is checked against an output schema."""
PLAIN_LIMIT_BYTES: Final = 128 * 1024
"""Decoded in 15 ms, whatever is in it."""


async def passed_on(
    call: Call,
    fields: Mapping[str, msgspec.Raw],
    results: Literal["enforce", "warn", "off"],
    validation: Validation,
) -> Outcome:
    """Check what a server returned, as strictly as was asked for."""
    if is_input_required(fields):
        # No result yet: what the output schema describes comes when the questions are answered.
        return Outcome(_encode(fields), passed=fields)
    is_error = bytes(fields.get("isError", b"false")) == b"true"
    if call.tool.contract.result_schema is not None and not is_error and results != "off":
        try:
            raw = fields.get("structuredContent", _NOTHING)
            checking = validation.check_result(call, _structured(call, raw), raw, content_of=lambda: _content(fields))
            if checking is not None:
                await checking
        except InvalidResult as violation:
            call.blame(violation.message)
            if results == "enforce":
                raise
            event(
                _log,
                logging.WARNING,
                "result breaks the schema",
                tool=call.tool.contract.name,
                reason=violation.message,
            )
    return Outcome(_encode(fields), passed=fields, is_error=is_error)


def plain_outcome(call: Call, raw: bytes) -> Outcome | None:
    """Read a result that can be passed on as it is; None if there is anything more to be said about it."""
    tool = call.tool
    returned = tool.read(raw) if tool.read is not None else None
    if returned is None or returned.passed is None or is_input_required(returned.passed):
        return None
    fields = returned.passed
    is_error = bytes(fields.get("isError", b"false")) == b"true"
    gives = tool.contract.result_schema
    if gives is not None and not is_error and returned.results != "off":
        raw_result = fields.get("structuredContent", _NOTHING)
        # Whatever is wrong with it, or takes long to look at, is for the task.
        limit_bytes = min(gives.quick_bytes, PLAIN_LIMIT_BYTES)
        if len(memoryview(raw_result)) > limit_bytes or not gives.is_valid(msgspec.json.decode(raw_result)):
            return None
    return Outcome(_encode(fields), passed=fields, is_error=is_error)


def _structured(call: Call, raw: msgspec.Raw) -> Json:
    try:
        return decode(bytes(raw), value_limit=VALUE_LIMIT)
    except BadShape as error:
        raise InvalidResult(
            f"The result of `{call.tool.contract.name}` cannot be checked against its output schema: it {error}",
            hint='ask the tool for less at a time, or set `results = "off"` for its server',
        ) from error


def _content(fields: Mapping[str, msgspec.Raw]) -> list[Json]:
    raw = fields.get("content")
    try:
        blocks = None if raw is None else decode(bytes(raw))
    except BadShape:
        return []
    return blocks if isinstance(blocks, list) else []
