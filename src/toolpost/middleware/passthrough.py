"""An upstream server's own result: checked against its output schema, and otherwise passed on unchanged."""

import logging
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from toolpost.base import Json, event
from toolpost.contracts.errors import InvalidResult
from toolpost.middleware.call import Call
from toolpost.middleware.interface import CheckedResult
from toolpost.middleware.validate import Validation
from toolpost.protocol.shape import BadShape, decode
from toolpost.providers.input_required import is_input_required

_log = logging.getLogger("toolpost.results")
_encode = msgspec.json.Encoder().encode
_NULL = msgspec.Raw(b"null")

VALUE_LIMIT: Final = 100_000
"""How many values a result may have to be checked against an output schema."""
PLAIN_LIMIT_BYTES: Final = 128 * 1024
"""A structured result of this size decodes within 15 ms, whatever is in it."""


async def check_passthrough(
    call: Call,
    fields: Mapping[str, msgspec.Raw],
    results: Literal["enforce", "warn", "off"],
    validation: Validation,
) -> CheckedResult:
    """Check a server's result as strictly as `results` says. Raises `InvalidResult` with "enforce"; "warn" only logs it."""
    if is_input_required(fields):
        # `input_required`: the result that the output schema describes comes in a later round.
        return CheckedResult(_encode(fields), upstream_fields=fields)
    is_error = bytes(fields.get("isError", b"false")) == b"true"
    if call.tool.contract.result_schema is not None and not is_error and results != "off":
        try:
            raw = fields.get("structuredContent", _NULL)
            checking = validation.check_result(
                call, _decode_structured(call, raw), raw, content_of=lambda: _decode_content(fields)
            )
            if checking is not None:
                await checking
        except InvalidResult as error:
            call.report_failure(error.message)
            if results == "enforce":
                raise
            event(
                _log,
                logging.WARNING,
                "result breaks the schema",
                tool=call.tool.contract.name,
                reason=error.message,
            )
    return CheckedResult(_encode(fields), upstream_fields=fields, is_error=is_error)


def read_plain_result(call: Call, raw: bytes) -> CheckedResult | None:
    """Read a result that can be passed on as it is; None leaves it to the call's task, because it is invalid, too large to
    check on the event loop, or asks for input.
    """
    tool = call.tool
    assert tool.fast_request is not None
    returned = tool.fast_request.read(raw)
    if returned.upstream_fields is None or is_input_required(returned.upstream_fields):
        return None
    fields = returned.upstream_fields
    is_error = bytes(fields.get("isError", b"false")) == b"true"
    gives = tool.contract.result_schema
    if gives is not None and not is_error and returned.results != "off":
        raw_result = fields.get("structuredContent", _NULL)
        limit_bytes = min(gives.inline_limit_bytes, PLAIN_LIMIT_BYTES)
        if len(memoryview(raw_result)) > limit_bytes or not gives.is_valid(msgspec.json.decode(raw_result)):
            return None
    return CheckedResult(_encode(fields), upstream_fields=fields, is_error=is_error)


def _decode_structured(call: Call, raw: msgspec.Raw) -> Json:
    try:
        return decode(bytes(raw), value_limit=VALUE_LIMIT)
    except BadShape as error:
        raise InvalidResult(
            f"The result of `{call.tool.contract.name}` cannot be checked against its output schema: it {error}",
            hint='ask the tool for less at a time, or set `results = "off"` for its server',
        ) from error


def _decode_content(fields: Mapping[str, msgspec.Raw]) -> list[Json]:
    raw = fields.get("content")
    try:
        blocks = None if raw is None else decode(bytes(raw))
    except BadShape:
        return []
    return blocks if isinstance(blocks, list) else []
