"""The answer of a call as `toolpost call` shows it, from this process or from a running gateway."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from toolpost.base.ids import META_KEY, Json, JsonObject
from toolpost.contracts.envelope import ResultStyle, failure_payload
from toolpost.contracts.errors import ErrorCode, ToolpostError
from toolpost.gateway import Answer

_NO_MESSAGE: Final = "the tool failed without a message"


@dataclass(frozen=True, kw_only=True)
class CallAnswer:
    """Data or an error, and content blocks; the result of an upstream server may consist of blocks only."""

    encoded: bytes
    """What `--json` prints."""
    call_id: str | None = None
    """None if no gateway accepted the call."""
    data: Json = None
    has_data: bool = False
    error: JsonObject | None = None
    """The error object, as in docs/reference/errors.md."""
    content: Sequence[Json] = ()
    """Content blocks beside the data or the error."""
    has_content_encoded: bool = False
    """Whether the content blocks are in `encoded` too."""
    is_timed_out: bool = False
    """Whether `--timeout` ended the call."""


def parse_answer(answer: Answer, *, is_timed_out: bool = False) -> CallAnswer:
    """Convert the answer of a gateway in this process."""
    payload: Json = msgspec.json.decode(answer.payload)
    if answer.result is not None and answer.result.upstream_fields is not None:
        structured = payload.get("structuredContent")
        if not answer.call.tool.contract.is_upstream and _is_envelope(structured) and "data" in structured:
            payload = payload | {"structuredContent": structured["data"]}
        return _parse_server_result(payload, encoded=answer.payload, call_id=answer.call.id)
    is_wrapped = answer.style is ResultStyle.ENVELOPE
    error = (payload["error"] if is_wrapped else payload) if answer.is_error else None
    if error is None and answer.call.tool.contract.answers_text:
        # Shown as clients get it: the text itself.
        block = {"type": "text", "text": payload}
        return CallAnswer(
            encoded=answer.payload, call_id=answer.call.id, content=[block, *answer.content], has_content_encoded=True
        )
    return CallAnswer(
        encoded=answer.payload,
        call_id=answer.call.id,
        data=payload["data"] if is_wrapped and error is None else payload,
        has_data=error is None,
        error=error,
        content=answer.content,
        is_timed_out=is_timed_out,
    )


def parse_result(raw: bytes) -> CallAnswer:
    """Parse the `tools/call` result of a running gateway; raises ValueError if it is not one.

    An envelope or an error is unwrapped, so that `--json` prints the same as for a call in this process. The result of a tool
    with another style looks like that of an upstream server and is printed as received.
    """
    result: Json = msgspec.json.decode(raw)
    if not isinstance(result, dict):
        raise ValueError("a result is an object")  # noqa: TRY004 (callers catch this one for any malformed result)
    meta = result.get("_meta")
    facts = meta.get(META_KEY) if isinstance(meta, dict) else None
    facts = facts if isinstance(facts, dict) else {}
    call_id = str(facts["callId"]) if "callId" in facts else None
    blocks = _blocks_of(result)
    first = blocks[0] if blocks else None
    text = str(first.get("text")) if isinstance(first, dict) and first.get("type") == "text" else ""
    structured: Json = result.get("structuredContent")
    if result.get("isError"):
        if "code" not in facts:
            return _parse_server_result(result, encoded=raw, call_id=call_id)
        error = structured["error"] if _is_envelope(structured) else msgspec.json.decode(text)
        return CallAnswer(encoded=text.encode(), call_id=call_id, error=_parse_error(error), content=blocks[1:])
    if _is_envelope(structured) and "data" in structured and _is_json_of(text, structured):
        return CallAnswer(
            encoded=text.encode(), call_id=call_id, data=structured["data"], has_data=True, content=blocks[1:]
        )
    return _parse_server_result(result, encoded=raw, call_id=call_id)


def make_failed_answer(error: ToolpostError, *, is_timed_out: bool = False) -> CallAnswer:
    """Make the answer of a call that no gateway answered."""
    details = error.as_object()
    return CallAnswer(
        encoded=failure_payload(details, ResultStyle.ENVELOPE),
        error=details,
        is_timed_out=is_timed_out,
    )


def _parse_server_result(result: JsonObject, *, encoded: bytes, call_id: str | None) -> CallAnswer:
    """Convert a result of an upstream server: its structured content, else its content blocks."""
    blocks = _blocks_of(result)
    others = [block for block in blocks if not (isinstance(block, dict) and block.get("type") == "text")]
    error, data = None, result.get("structuredContent")
    if result.get("isError"):
        texts = [str(block.get("text")) for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
        error = {"code": ErrorCode.HANDLER_ERROR.value, "message": " ".join(texts) or _NO_MESSAGE}
    has_data = error is None and data is not None
    return CallAnswer(
        encoded=encoded,
        call_id=call_id,
        data=data,
        has_data=has_data,
        error=error,
        # Next to structured content, text repeats it for clients that read only text.
        content=others if has_data or error is not None else blocks,
        has_content_encoded=True,
    )


def _blocks_of(result: JsonObject) -> list[Json]:
    blocks = result.get("content")
    return blocks if isinstance(blocks, list) else []


def _is_envelope(structured: Json) -> bool:
    if not isinstance(structured, dict) or not isinstance(structured.get("ok"), bool):
        return False
    return structured.keys() == {"ok", "data" if structured["ok"] else "error"}


def _is_json_of(text: str, value: Json) -> bool:
    try:
        return bool(msgspec.json.decode(text) == value)
    except msgspec.DecodeError:
        return False


def _parse_error(error: Json) -> JsonObject:
    """Parse an error object, also in the form in which `automatic_eval` refuses arguments."""
    if not isinstance(error, dict) or "code" not in error:
        raise ValueError("an error has a code")
    if "message" in error:
        return error
    details = {"issues": error.get("issues", [])}
    return {
        "code": error["code"],
        "message": str(error.get("error")),
        "details": details,
        "toolSchema": error.get("toolSchema"),
    }
