"""A result that a function made itself: content in place of data, `isError` with content of its own, `_meta`.

It is sent as the function made it, in both styles. Structured content is what the listed output schema describes: the data,
in the envelope if the tool has one. An error of a tool with an envelope has one too, so that a client may read `ok` of every
answer that has structured content.
"""

from collections.abc import Sequence

import msgspec

from toolpost.base.ids import Json, JsonObject
from toolpost.contracts.envelope import ResultStyle, failure_payload, success_payload
from toolpost.contracts.errors import ErrorCode, InvalidResult
from toolpost.middleware.call import Call
from toolpost.middleware.interface import CheckedResult
from toolpost.middleware.validate import Validation
from toolpost.providers import RawResult

_encode = msgspec.json.Encoder().encode


async def check_custom_result(call: Call, returned: RawResult, validation: Validation) -> CheckedResult:
    """Check the data of such a result, if it has any, and build the result; raises `InvalidResult` if the schema is broken."""
    contract = call.tool.contract
    has_data = returned.value is not msgspec.UNSET
    if has_data and not returned.is_error:
        checking = validation.check_result(
            call, returned.value, _encode(returned.value), content_of=lambda: returned.content
        )
        if checking is not None:
            await checking
    elif contract.result_schema is not None and not returned.is_error:
        raise InvalidResult(
            f"`{contract.name}` lists an output schema, and its result has no data.",
            hint="this is an error of the tool, not of the call",
            content=returned.content,
        )
    style = contract.terms.style
    payload = b""
    if returned.is_error:
        payload = _error_payload(returned, style)
    elif has_data:
        payload = success_payload(_encode(returned.value), style)
    content = list(returned.content)
    if has_data:
        data = payload if not returned.is_error else _encode(returned.value)
        content.insert(0, {"type": "text", "text": data.decode()})
    fields = {"content": msgspec.Raw(_encode(content))}
    if payload[:1] == b"{":
        fields["structuredContent"] = msgspec.Raw(payload)
    fields["isError"] = msgspec.Raw(b"true" if returned.is_error else b"false")
    if returned.meta:
        fields["_meta"] = msgspec.Raw(_encode(returned.meta))
    return CheckedResult(_encode(fields), upstream_fields=fields, is_error=returned.is_error)


def _error_payload(returned: RawResult, style: ResultStyle) -> bytes:
    """Return the envelope of an error; a plain tool has none, because its schema describes what it gives when it succeeds."""
    if style is ResultStyle.PLAIN:
        return b""
    error: JsonObject = {"code": ErrorCode.HANDLER_ERROR.value, "message": _first_text(returned.content)}
    if isinstance(returned.value, dict):
        error["details"] = returned.value
    return failure_payload(error, style)


def _first_text(content: Sequence[Json]) -> str:
    for block in content:
        if isinstance(block, dict) and isinstance(text := block.get("text"), str):
            return text
    return "The tool failed."


def read_data(checked: CheckedResult, style: ResultStyle) -> bytes:
    """Return the JSON of the data in such a result, `null` without any."""
    assert checked.upstream_fields is not None
    structured = bytes(checked.upstream_fields.get("structuredContent", b"null"))
    if style is ResultStyle.PLAIN or structured == b"null":
        return structured
    return bytes(msgspec.json.decode(structured, type=dict[str, msgspec.Raw]).get("data", b"null"))
