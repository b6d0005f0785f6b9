"""`router.sampling`: sampling requests of servers, answered by the models of this gateway where the client has none.

A server states preferences: hints are parts of model names, the first one preferred; its priorities for cost, speed and
intelligence scale the weights of cost, latency and the operator's preference, 0.5 leaving them as they are. Only endpoints
answer, never an agent: a server's request must not act. Tools, audio and other modalities are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from toolpost import Caller, UpstreamUnavailable
from toolpost.base import JsonObject
from toolpost.contracts import InvalidRequest
from toolpost.parts.models.endpoint import ModelImage, ModelPrompt, PromptMessage
from toolpost.parts.models.router import Router
from toolpost.parts.models.score import ScoreRequest, ScoreWeights
from toolpost.protocol import encode

_STOP_REASONS = {"stop": "endTurn", "length": "maxTokens"}


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""
    data: str = ""
    mimeType: str = ""  # noqa: N815 (as on the wire)


class _Message(msgspec.Struct):
    role: Literal["user", "assistant"]
    content: _Block | list[_Block]


class _Hint(msgspec.Struct):
    name: str | None = None


class _Preferences(msgspec.Struct):
    hints: list[_Hint] | None = None
    costPriority: float | None = None  # noqa: N815
    speedPriority: float | None = None  # noqa: N815
    intelligencePriority: float | None = None  # noqa: N815


class _SamplingRequest(msgspec.Struct):
    messages: list[_Message]
    maxTokens: int  # noqa: N815
    systemPrompt: str | None = None  # noqa: N815
    temperature: float | None = None
    stopSequences: list[str] | None = None  # noqa: N815
    modelPreferences: _Preferences | None = None  # noqa: N815


_decode = msgspec.json.Decoder(_SamplingRequest).decode


@dataclass(frozen=True, kw_only=True)
class RouterSampler:
    """Answers sampling requests with a router's models."""

    router: Router
    timeout_s: float
    models: Mapping[str, str]
    """Those that may answer, with the endpoints' own names for them: servers give hints by these."""

    async def __call__(self, params: bytes, caller: Caller) -> bytes:
        """Return the result of a `sampling/createMessage`, or raise a `ToolpostError`."""
        try:
            request = _decode(params)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidRequest(
                f"This is no sampling request: {error}", hint="see `sampling/createMessage`"
            ) from error
        if not self.models:
            raise UpstreamUnavailable("No model is configured that could answer", hint="add [models.NAME] with a `url`")
        prompt = _read_prompt(request)
        stated = request.modelPreferences or _Preferences()
        hinted = self._read_hints(stated)
        text = "\n".join(part for message in prompt.messages for part in message.content if isinstance(part, str))
        routed = await self.router.call(
            prompt,
            ScoreRequest(prompt=text, output_tokens=prompt.max_tokens, preferences=hinted),
            caller=caller,
            timeout_s=self.timeout_s,
            only=list(self.models),
            rules=self._weigh(stated, has_hint=bool(hinted)),
        )
        result: JsonObject = {
            "role": "assistant",
            "content": {"type": "text", "text": routed.completion.text},
            "model": self.models[routed.model],
            "stopReason": _STOP_REASONS.get(routed.completion.finish, routed.completion.finish),
        }
        return encode(result)

    def _read_hints(self, stated: _Preferences) -> dict[str, float]:
        """Return a preference for each model that a hint names: 1 by the first hint, less by later ones."""
        hints = [hint.name.casefold() for hint in stated.hints or () if hint.name]
        found: dict[str, float] = {}
        for number, hint in enumerate(hints):
            for name, model in self.models.items():
                if hint in name.casefold() or hint in model.casefold():
                    found.setdefault(name, 1 - number / (2 * len(hints)))
        # Where a hint fits, the operator's own order decides only among those that it fits.
        return {name: found.get(name, 0.0) for name in self.models} if found else {}

    def _weigh(self, stated: _Preferences, *, has_hint: bool) -> ScoreWeights:
        weights = dict(self.router.scorer.rules.weights)
        for factor, priority in (
            ("cost", stated.costPriority),
            ("latency", stated.speedPriority),
            ("preference", stated.intelligencePriority),
        ):
            if priority is not None:
                weights[factor] *= 2 * max(0.0, min(1.0, priority))
        if has_hint:
            # A hint is a request for that model, and stronger than any priority.
            weights["preference"] = max(weights["preference"], 2 * sum(weights.values()))
        return ScoreWeights(weights)


def _read_prompt(request: _SamplingRequest) -> ModelPrompt:
    messages = []
    for message in request.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        content: list[str | ModelImage] = []
        for block in blocks:
            if block.type == "text":
                content.append(block.text)
            elif block.type == "image":
                content.append(ModelImage(data=block.data, mime_type=block.mimeType))
            else:
                raise InvalidRequest(
                    f"Sampling takes text and images here, not {block.type[:40]!r}", hint="send it as text"
                )
        messages.append(PromptMessage(role=message.role, content=content))
    if request.maxTokens < 1:
        raise InvalidRequest("maxTokens is a number from 1", hint="leave room for an answer")
    return ModelPrompt(
        messages=messages,
        system=request.systemPrompt,
        max_tokens=request.maxTokens,
        temperature=request.temperature,
        stop=request.stopSequences or (),
    )
