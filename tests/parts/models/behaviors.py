"""How a fake endpoint answers, by the name of the model; True keeps the connection."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

Behavior = Callable[..., Awaitable[bool]]
BEHAVIORS: dict[str, Behavior] = {}


def _behavior(function: Behavior) -> Behavior:
    BEHAVIORS[function.__name__] = function
    return function


def whole(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", "content-type: application/json", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    return b"data: %b\n\n" % (value if isinstance(value, bytes) else json.dumps(value).encode())


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def answer_to(body: dict[str, Any], api: str, text: str) -> dict[str, Any]:
    if api == "chat":
        return {
            "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 5},
        }
    return {
        "status": "completed",
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "content": [{"type": "output_text", "text": text}]},
        ],
        "usage": {"input_tokens": 11, "output_tokens": 5},
    }


def events_of(api: str, *pieces: str) -> list[Any]:
    if api == "chat":
        return [
            {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
            *({"choices": [{"delta": {"content": piece}, "finish_reason": None}]} for piece in pieces),
            {"choices": [{"delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 5}},
            b"[DONE]",
        ]
    return [
        {"type": "response.created", "response": {}},
        *({"type": "response.output_text.delta", "delta": piece} for piece in pieces),
        {"type": "response.completed", "response": answer_to({}, api, "".join(pieces))},
    ]


@_behavior
async def good(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    text = f"the answer of {body['model']}"
    if not body.get("stream"):
        writer.write(whole(200, json.dumps(answer_to(body, api, text)).encode()))
        return True
    writer.write(STREAM)
    for one in events_of(api, *(f"{word} " for word in text.split())):
        writer.write(chunk(event(one)))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    return True


@_behavior
async def new_limit(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    """Refuses `max_tokens`, as newer models of OpenAI do."""
    if "max_tokens" in body:
        said = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        writer.write(whole(400, json.dumps({"error": {"message": said, "code": "unsupported_parameter"}}).encode()))
        return True
    return await good(endpoint, body, api, reader, writer)


@_behavior
async def slow(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    await asyncio.sleep(0.3)
    return await good(endpoint, body, api, reader, writer)


@_behavior
async def ignores_stream(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    return await good(endpoint, body | {"stream": False}, api, reader, writer)


@_behavior
async def hangs(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    assert await reader.read(1) == b""
    endpoint.closed += 1
    return False


@_behavior
async def hangs_in_stream(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    writer.write(STREAM + chunk(event(events_of(api, "half of the")[1])))
    return await hangs(endpoint, body, api, reader, writer)


@_behavior
async def closes(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    return False


@_behavior
async def dies_in_stream(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    writer.write(STREAM + chunk(event(events_of(api, "half of the")[1])))
    await writer.drain()
    return False


@_behavior
async def ends_in_stream(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    """Ends the stream in good order, in the middle of the answer."""
    writer.write(STREAM + chunk(event(events_of(api, "half of the")[1])) + b"0\r\n\r\n")
    return True


@_behavior
async def error_in_stream(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    said = {"type": "error", "error": {"message": "overloaded"}}
    writer.write(STREAM + chunk(event(said)) + b"0\r\n\r\n")
    return True


@_behavior
async def garbage(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    if body.get("stream"):
        writer.write(STREAM + chunk(b"data: {{{{not json\n\n") + b"0\r\n\r\n")
    else:
        writer.write(whole(200, b"<html>\xff\xfe a proxy's page</html>"))
    return True


@_behavior
async def not_http(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    writer.write(b"\x16\x03\x01 hello\r\n\r\n")
    return False


@_behavior
async def empty(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    writer.write(whole(200, b'{"choices": [], "output": []}'))
    return True


@_behavior
async def null_text(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    writer.write(
        whole(200, b'{"choices": [{"message": {"content": null}}], "output": [{"type": "message", "content": null}]}')
    )
    return True


@_behavior
async def odd_usage(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    said = answer_to(body, api, "fine")
    said["usage"] = dict.fromkeys(("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"), -1e300)
    writer.write(whole(200, json.dumps(said).encode()))
    return True


@_behavior
async def broken(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    writer.write(whole(500, b'{"error": {"message": "out of   memory"}}'))
    return True


@_behavior
async def refuses(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    writer.write(whole(400, b'{"error": {"message": "temperature is too high"}}'))
    return True


@_behavior
async def echoes_key(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    """Repeats the key that it refuses, behind so many words that a cut goes through it."""
    key = endpoint.heads[-1].decode().partition("Bearer ")[2].split("\r\n")[0]
    writer.write(whole(401, json.dumps({"error": {"message": f"{'x' * 170} not your key: {key} {key}"}}).encode()))
    return True


@_behavior
async def busy(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    """Refuses the first request of a model for a second, and answers the next."""
    if endpoint.count(body["model"]) > 1:
        return await good(endpoint, body, api, reader, writer)
    writer.write(whole(429, b'{"error": {"message": "slow down"}}', "retry-after: 1"))
    return True


@_behavior
async def very_busy(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    writer.write(whole(429, b"", "retry-after: 3000"))
    return True


@_behavior
async def endless(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    """Streams text without an end."""
    writer.write(STREAM)
    piece = chunk(event(events_of(api, "x" * 100_000)[1]))
    while True:
        writer.write(piece)
        await writer.drain()


@_behavior
async def reranks(endpoint: Any, body: dict[str, Any], api: str, reader: Any, writer: Any) -> bool:
    """Turns the order of the tools in a request of the search around."""
    tools = json.loads(body["messages"][-1]["content"])["tools"]
    names = [line.partition(":")[0] for line in tools][::-1][:4]
    writer.write(whole(200, json.dumps(answer_to(body, api, json.dumps(names))).encode()))
    return True
