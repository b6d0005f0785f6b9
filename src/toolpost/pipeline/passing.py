"""A server's own result on its way through: checked against its own schema, and otherwise left as it came."""

import logging
from collections.abc import Mapping
from typing import Literal

import msgspec

from toolpost.contracts.errors import InvalidResult
from toolpost.contracts.events import event
from toolpost.contracts.ids import Json
from toolpost.pipeline.call import Call
from toolpost.pipeline.stage import Outcome
from toolpost.pipeline.validate import check_result
from toolpost.sources.rounds import is_asking

_log = logging.getLogger("toolpost.results")
_encode = msgspec.json.Encoder().encode


def passed_on(call: Call, fields: Mapping[str, msgspec.Raw], results: Literal["enforce", "warn", "off"]) -> Outcome:
    """Check what a server returned, as strictly as was asked for."""
    if is_asking(fields):
        # No result yet: what the output schema describes comes when the questions are answered.
        return Outcome(_encode(fields), passed=fields)
    is_error = bytes(fields.get("isError", b"false")) == b"true"
    if call.tool.contract.gives is not None and not is_error and results != "off":
        try:
            check_result(call.tool.contract, _structured(fields), content=_content(fields))
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
    if returned is None or returned.passed is None or is_asking(returned.passed):
        return None
    fields = returned.passed
    is_error = bytes(fields.get("isError", b"false")) == b"true"
    is_held = tool.contract.gives is not None and not is_error and returned.results != "off"
    if is_held and tool.contract.faults_in_result(_structured(fields)):
        return None
    return Outcome(_encode(fields), passed=fields, is_error=is_error)


def _structured(fields: Mapping[str, msgspec.Raw]) -> Json:
    raw = fields.get("structuredContent")
    return None if raw is None else msgspec.json.decode(raw)


def _content(fields: Mapping[str, msgspec.Raw]) -> list[Json]:
    raw = fields.get("content")
    blocks = None if raw is None else msgspec.json.decode(raw)
    return blocks if isinstance(blocks, list) else []
