"""The answer of a call as `toolpost call` shows it, whether it comes from this process or from a gateway that runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from toolpost.base.ids import META_KEY, Json, JsonObject
from toolpost.contracts.envelope import ResultStyle, failure_payload
from toolpost.contracts.errors import ErrorCode, ToolpostError
from toolpost.gateway import Answer

_SAID_NOTHING: Final = "the server says that the tool failed"


@dataclass(frozen=True, kw_only=True)
class CallAnswer:
    """Data or an error, and content blocks; a server's own result may have blocks alone."""

    encoded: bytes
    """What `--json` prints."""
    call_id: str | None = None
    """None if no gateway has taken the call."""
    data: Json = None
    has_data: bool = False
    error: JsonObject | None = None
    """The error object, as in docs/reference/errors.md."""
    content: Sequence[Json] = ()
    """Content blocks beside the data or the error."""
    has_content_encoded: bool = False
    """Whether the content blocks are in `encoded` too."""
    has_run_out: bool = False
    """Whether the limit of `--timeout` ended the call."""


def read_answer(answer: Answer, *, has_run_out: bool = False) -> CallAnswer:
    """Read the answer of a gateway in this process."""
    payload: Json = msgspec.json.decode(answer.payload)
    if answer.passed is not None:
        return _read_servers_own(payload, encoded=answer.payload, call_id=answer.call.id)
    is_wrapped = answer.style is ResultStyle.ENVELOPE
    error = (payload["error"] if is_wrapped else payload) if answer.is_error else None
    return CallAnswer(
        encoded=answer.payload,
        call_id=answer.call.id,
        data=payload["data"] if is_wrapped and error is None else payload,
        has_data=error is None,
        error=error,
        content=answer.content,
        has_run_out=has_run_out,
    )


def read_result(raw: bytes) -> CallAnswer:
    """Read the result of a `tools/call` of a gateway that runs; raises ValueError for what is none.

    An envelope or an error is taken out of it, so that `--json` prints what it prints for a call in this process. What a
    tool with another style returns cannot be told from what a server does: that result is printed as it came.
    """
    result: Json = msgspec.json.decode(raw)
    if not isinstance(result, dict):
        raise ValueError("a result is an object")  # noqa: TRY004 (the caller tells nonsense apart by this alone)
    meta = result.get("_meta")
    facts = meta.get(META_KEY) if isinstance(meta, dict) else None
    facts = facts if isinstance(facts, dict) else {}
    call_id = str(facts["callId"]) if "callId" in facts else None
    blocks = _blocks(result)
    first = blocks[0] if blocks else None
    text = str(first.get("text")) if isinstance(first, dict) and first.get("type") == "text" else ""
    structured: Json = result.get("structuredContent")
    if result.get("isError"):
        if "code" not in facts:
            return _read_servers_own(result, encoded=raw, call_id=call_id)
        told = structured["error"] if _is_envelope(structured) else msgspec.json.decode(text)
        return CallAnswer(encoded=text.encode(), call_id=call_id, error=_error_object(told), content=blocks[1:])
    if _is_envelope(structured) and "data" in structured and _is_json_of(text, structured):
        return CallAnswer(
            encoded=text.encode(), call_id=call_id, data=structured["data"], has_data=True, content=blocks[1:]
        )
    return _read_servers_own(result, encoded=raw, call_id=call_id)


def failed_answer(error: ToolpostError, *, has_run_out: bool = False) -> CallAnswer:
    """Make the answer of a call that no gateway has answered."""
    told = error.as_object()
    return CallAnswer(encoded=failure_payload(told, ResultStyle.ENVELOPE), error=told, has_run_out=has_run_out)


def _read_servers_own(result: JsonObject, *, encoded: bytes, call_id: str | None) -> CallAnswer:
    """Read what a server returned: its structured content, else its content blocks."""
    blocks = _blocks(result)
    others = [block for block in blocks if not (isinstance(block, dict) and block.get("type") == "text")]
    error, data = None, result.get("structuredContent")
    if result.get("isError"):
        texts = [str(block.get("text")) for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
        error = {"code": ErrorCode.HANDLER_ERROR.value, "message": " ".join(texts) or _SAID_NOTHING}
    has_data = error is None and data is not None
    return CallAnswer(
        encoded=encoded,
        call_id=call_id,
        data=data,
        has_data=has_data,
        error=error,
        # Beside structured content, text is the same once more for clients that read only that.
        content=others if has_data or error is not None else blocks,
        has_content_encoded=True,
    )


def _blocks(result: JsonObject) -> list[Json]:
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


def _error_object(told: Json) -> JsonObject:
    """Read an error object, in the form too in which `automatic_eval` refuses arguments."""
    if not isinstance(told, dict) or "code" not in told:
        raise ValueError("an error has a code")
    if "message" in told:
        return told
    details = {"issues": told.get("issues", [])}
    return {
        "code": told["code"],
        "message": str(told.get("error")),
        "details": details,
        "toolSchema": told.get("toolSchema"),
    }
