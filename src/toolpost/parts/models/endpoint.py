"""OpenAI-compatible endpoints: one request to chat completions or to the Responses API, as a whole or as a stream of events.

An endpoint may answer with anything. Every way in which it fails ends as `EndpointFailed`, which says whether that counts
against the endpoint: a 400 may be the fault of the request, and one caller must not be able to open the circuit for all others.
Time limits are the caller's; cancelling closes the connection.
"""

import email.utils
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from toolpost import Caller
from toolpost.base import Json, JsonObject, conceal_known
from toolpost.net import DIRECT, HttpClient, HttpFailed, Network, Response
from toolpost.protocol import BadShape, check_shape

Api = Literal["chat", "responses"]
TextListener = Callable[[str], None]

BODY_LIMIT_BYTES: Final = 2 * 1024 * 1024
"""The longest answer, whole or as a stream: half a million tokens, several times what models write."""
ERROR_LIMIT_BYTES: Final = 64 * 1024
"""A longer error is not searched for its message."""

REASON_LIMIT: Final = 300
MESSAGE_LIMIT: Final = 10_000
"""How much of an endpoint's error message is read."""
RETRY_LIMIT_S: Final = 3_600.0
"""A Retry-After that is longer than this is shortened: an endpoint's mistake must not end its use for days."""

TOKENS_LIMIT: Final = 1_000_000_000

_REQUEST_FAULTS: Final = frozenset({400, 413, 415, 422})
"""Statuses that the request may be to blame for."""

_PATHS: Final[dict[Api, str]] = {"chat": "/chat/completions", "responses": "/responses"}
_DONE: Final = b"[DONE]"
_NULL: Final = msgspec.Raw(b"null")
_NEW_LIMIT: Final = "max_completion_tokens"


class EndpointFailed(Exception):
    """The endpoint gave no useful answer."""

    def __init__(self, reason: str, *, counts: bool = True, retry_s: float | None = None) -> None:
        """`counts`: against the endpoint. `retry_s` is how long it wants to be left alone."""
        # An endpoint may repeat the key that it refuses. Concealed before it is cut, which could leave a part of it.
        reason = conceal_known(reason)[:REASON_LIMIT]
        super().__init__(reason)
        self.reason = reason
        self.counts = counts
        self.retry_s = retry_s


@dataclass(frozen=True, kw_only=True)
class ModelImage:
    """An image in a message, as base64."""

    data: str
    mime_type: str


@dataclass(frozen=True, kw_only=True)
class PromptMessage:
    """A message to a model."""

    role: Literal["user", "assistant"]
    content: Sequence[str | ModelImage]


@dataclass(frozen=True, kw_only=True)
class ModelPrompt:
    """A request to a model."""

    messages: Sequence[PromptMessage]
    system: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    stop: Sequence[str] = ()

    @classmethod
    def of_text(cls, text: str, **options: Any) -> "ModelPrompt":
        """Make a prompt of one message; `options` are its other fields."""
        return cls(messages=[PromptMessage(role="user", content=[text])], **options)


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A model's answer."""

    text: str
    finish: str = "stop"
    """Why it ended: `stop`, `length`, or another word of the endpoint."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    """As the endpoint counted them; None if it did not say."""


class Endpoint:
    """Asks one model at one endpoint. Close it with `aclose`."""

    def __init__(
        self, url: str, *, model: str, api: Api = "chat", key: str | None = None, network: Network = DIRECT
    ) -> None:
        base = url.rstrip("/")
        path = _PATHS[api]
        self._model = model
        self._api: Api = api
        self._limit_name = "max_tokens"
        """What a limit on the answer is called: nearly all endpoints take this, and newer models of OpenAI refuse it."""
        self._client = HttpClient(
            base if base.endswith(path) else base + path,
            headers={"authorization": f"Bearer {key}"} if key else {},
            body_limit=BODY_LIMIT_BYTES,
            network=network,
        )

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def complete(self, prompt: ModelPrompt, on_text: TextListener | None = None) -> Completion:
        """Return the model's answer, or raise `EndpointFailed`. With `on_text` it is streamed, and each piece passed on."""
        body = (
            _chat_body(self._model, prompt, self._limit_name)
            if self._api == "chat"
            else _responses_body(self._model, prompt)
        )
        stream: _ChatStream | _ResponsesStream | None = None
        if on_text is not None:
            body["stream"] = True
            if self._api == "chat":
                # Without this, a stream of chat completions says nothing of its tokens.
                body["stream_options"] = {"include_usage": True}
            stream = _ChatStream(on_text) if self._api == "chat" else _ResponsesStream(on_text)
        try:
            on_event = stream.take if stream is not None else None
            response = await self._client.post(msgspec.json.encode(body), on_event=on_event)
            if response.status == 400 and "max_tokens" in body and _NEW_LIMIT.encode() in response.body:
                # It was refused before anything was written, and the refusal says what to send instead.
                self._limit_name = _NEW_LIMIT
                body[_NEW_LIMIT] = body.pop("max_tokens")
                response = await self._client.post(msgspec.json.encode(body), on_event=on_event)
            if response.status != 200:
                raise _refusal(response)
            is_stream = response.headers.get(b"content-type", b"").lower().startswith(b"text/event-stream")
            if stream is not None and is_stream:
                return stream.completion()
            # Some endpoints ignore `stream`, and answer as a whole.
            completion = (_read_chat if self._api == "chat" else _read_responses)(response.body)
        except HttpFailed as failure:
            raise EndpointFailed(failure.reason) from failure
        except (BadShape, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise EndpointFailed(f"its answer breaks the API's schema: {error}") from error
        if on_text is not None:
            on_text(completion.text)
        return completion


class EndpointModel:
    """An endpoint as a candidate."""

    acts = False

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def answer(self, prompt: ModelPrompt, caller: Caller, on_text: TextListener | None) -> Completion:  # noqa: ARG002
        """Ask the endpoint; it is not told who calls."""
        return await self._endpoint.complete(prompt, on_text)


class BrokenModel:
    """A candidate that cannot be used as it is configured, and says so instead of keeping the others from serving."""

    acts = False

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def answer(self, prompt: ModelPrompt, caller: Caller, on_text: TextListener | None) -> Completion:  # noqa: ARG002
        """Fail."""
        raise EndpointFailed(self._reason)


def parse_retry_after(value: str, now: float) -> float | None:
    """Read seconds or an HTTP date, as seconds from `now`; None for anything else."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), RETRY_LIMIT_S)
    try:
        at = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError, TypeError):
        return None
    return max(0.0, min(at - now, RETRY_LIMIT_S))


def _refusal(response: Response) -> EndpointFailed:
    """Describe a status other than 200; the endpoint's own message is quoted, in part."""
    retry_s = None
    if response.status in (429, 503) and (value := response.headers.get(b"retry-after")) is not None:
        retry_s = parse_retry_after(value.decode("latin-1"), time.time())
    reason = f"it answered with status {response.status}"
    if said := _error_message(response.body):
        reason = f"{reason}: {said}"
    return EndpointFailed(reason, counts=response.status not in _REQUEST_FAULTS, retry_s=retry_s)


def _error_message(body: bytes) -> str:
    if len(body) > ERROR_LIMIT_BYTES:
        return ""
    try:
        value: Json = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    error = value.get("error") if isinstance(value, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return conceal_known(" ".join(message[:MESSAGE_LIMIT].split()))[:200] if isinstance(message, str) else ""


# Chat completions


def _chat_body(model: str, prompt: ModelPrompt, limit_name: str) -> JsonObject:
    messages: list[JsonObject] = [{"role": "system", "content": prompt.system}] if prompt.system else []
    messages += [{"role": message.role, "content": _chat_content(message.content)} for message in prompt.messages]
    body: JsonObject = {"model": model, "messages": messages}
    if prompt.max_tokens is not None:
        body[limit_name] = prompt.max_tokens
    if prompt.temperature is not None:
        body["temperature"] = prompt.temperature
    if prompt.stop:
        body["stop"] = list(prompt.stop)
    return body


def _chat_content(content: Sequence[str | ModelImage]) -> Json:
    if all(isinstance(part, str) for part in content):
        # As one text: many compatible servers know no other form.
        return "\n\n".join(part for part in content if isinstance(part, str))
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": f"data:{part.mime_type};base64,{part.data}"}}
        for part in content
    ]


class _ChatUsage(msgspec.Struct):
    prompt_tokens: int | float | None = None
    completion_tokens: int | float | None = None


class _ChatMessage(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _ChatChoice(msgspec.Struct):
    message: _ChatMessage
    finish_reason: str | None = None


class _ChatAnswer(msgspec.Struct):
    choices: list[_ChatChoice]
    usage: _ChatUsage | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _ChunkChoice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _ChatChunk(msgspec.Struct):
    choices: list[_ChunkChoice] = []
    usage: _ChatUsage | None = None
    error: msgspec.Raw = _NULL


_decode_chat = msgspec.json.Decoder(_ChatAnswer).decode
_decode_chunk = msgspec.json.Decoder(_ChatChunk).decode


def _read_chat(body: bytes) -> Completion:
    check_shape(body)
    answer = _decode_chat(body)
    if not answer.choices:
        raise EndpointFailed("its answer has no choices")
    choice = answer.choices[0]
    text = choice.message.content if choice.message.content is not None else choice.message.refusal
    if text is None:
        raise EndpointFailed("its answer has no text")
    usage = answer.usage or _ChatUsage()
    return Completion(
        text=text,
        finish=choice.finish_reason or "stop",
        input_tokens=_count(usage.prompt_tokens),
        output_tokens=_count(usage.completion_tokens),
    )


class _Stream:
    """Collects the text of a stream, up to a limit."""

    def __init__(self, on_text: TextListener) -> None:
        self._on_text = on_text
        self._pieces: list[str] = []
        self._size = 0
        self._finish: str | None = None
        self._input_tokens: int | None = None
        self._output_tokens: int | None = None

    def _add(self, text: str) -> None:
        self._size += len(text)
        if self._size > BODY_LIMIT_BYTES:
            raise EndpointFailed("its answer is too long")
        self._pieces.append(text)
        if text:
            self._on_text(text)

    def completion(self) -> Completion:
        """Return the answer; raises if the stream ended before its end was announced."""
        if self._finish is None:
            raise EndpointFailed("its stream ended in the middle of the answer")
        return Completion(
            text="".join(self._pieces),
            finish=self._finish,
            input_tokens=self._input_tokens,
            output_tokens=self._output_tokens,
        )


class _ChatStream(_Stream):
    """A stream of chat completion chunks, which ends with `[DONE]`."""

    def take(self, data: bytes) -> bool:
        if data.strip() == _DONE:
            return True
        check_shape(data)
        chunk = _decode_chunk(data)
        if bytes(chunk.error) != b"null":
            raise EndpointFailed(f"its stream ended with an error: {_error_message(data)}")
        if chunk.usage is not None:
            self._input_tokens = _count(chunk.usage.prompt_tokens)
            self._output_tokens = _count(chunk.usage.completion_tokens)
        for choice in chunk.choices[:1]:
            if text := choice.delta.content or choice.delta.refusal:
                self._add(text)
            self._finish = choice.finish_reason or self._finish
        return False


# Responses


def _responses_body(model: str, prompt: ModelPrompt) -> JsonObject:
    body: JsonObject = {
        "model": model,
        "input": [_responses_message(message) for message in prompt.messages],
        # What passes through a gateway is not to be kept at the endpoint.
        "store": False,
    }
    if prompt.system:
        body["instructions"] = prompt.system
    if prompt.max_tokens is not None:
        body["max_output_tokens"] = prompt.max_tokens
    if prompt.temperature is not None:
        body["temperature"] = prompt.temperature
    return body


def _responses_message(message: PromptMessage) -> JsonObject:
    kind = "input_text" if message.role == "user" else "output_text"
    return {
        "role": message.role,
        "content": [
            {"type": kind, "text": part}
            if isinstance(part, str)
            else {"type": "input_image", "image_url": f"data:{part.mime_type};base64,{part.data}"}
            for part in message.content
        ],
    }


class _ResponsesUsage(msgspec.Struct):
    input_tokens: int | float | None = None
    output_tokens: int | float | None = None


class _OutputContent(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _OutputItem(msgspec.Struct):
    type: str = ""
    content: list[_OutputContent] | None = None


class _Reason(msgspec.Struct):
    reason: str | None = None


class _ResponsesAnswer(msgspec.Struct):
    output: list[_OutputItem]
    status: str = "completed"
    usage: _ResponsesUsage | None = None
    incomplete_details: _Reason | None = None


class _ResponsesEvent(msgspec.Struct):
    type: str = ""
    delta: msgspec.Raw = _NULL
    response: msgspec.Raw = msgspec.Raw(b"{}")


_decode_response = msgspec.json.Decoder(_ResponsesAnswer).decode
_decode_event = msgspec.json.Decoder(_ResponsesEvent).decode


def _read_responses(body: bytes | msgspec.Raw) -> Completion:
    check_shape(bytes(body))
    answer = _decode_response(body)
    if answer.status not in ("completed", "incomplete"):
        raise EndpointFailed(f"its answer has the status {answer.status[:40]!r}: {_error_message(bytes(body))}")
    texts = [
        content.text if content.text is not None else content.refusal
        for item in answer.output
        if item.type == "message"
        for content in item.content or ()
    ]
    found = [text for text in texts if text is not None]
    if not found:
        raise EndpointFailed("its answer has no text")
    usage = answer.usage or _ResponsesUsage()
    finish = "stop"
    if answer.status == "incomplete":
        why = answer.incomplete_details.reason if answer.incomplete_details is not None else None
        finish = "length" if why in (None, "max_output_tokens") else why
    return Completion(
        text="".join(found),
        finish=finish,
        input_tokens=_count(usage.input_tokens),
        output_tokens=_count(usage.output_tokens),
    )


class _ResponsesStream(_Stream):
    """A stream of the Responses API; its last event has the whole response."""

    def take(self, data: bytes) -> bool:
        if data.strip() == _DONE:
            return True
        event = _decode_event(data)
        if event.type in ("error", "response.failed"):
            raise EndpointFailed(f"its stream ended with an error: {_error_message(bytes(event.response))}")
        is_text = event.type in ("response.output_text.delta", "response.refusal.delta")
        if is_text and bytes(event.delta)[:1] == b'"':
            self._add(msgspec.json.decode(event.delta, type=str))
        if event.type not in ("response.completed", "response.incomplete"):
            return False
        whole = _read_responses(event.response)
        self._finish = whole.finish
        self._input_tokens, self._output_tokens = whole.input_tokens, whole.output_tokens
        return True


def _count(value: float | None) -> int | None:
    """Return a number of tokens; None for what cannot be one."""
    return int(value) if value is not None and 0 <= value <= TOKENS_LIMIT else None
