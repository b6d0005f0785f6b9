"""Results of the kind `input_required`: a server of the stateless era asks for input instead of answering.

A client of that era gets such a result unchanged, and sends its request again with the answers. A client of the handshake era is
sent the requests in it one by one, and the request is made again on its behalf (`answer_input_requests`).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from uuid import uuid4

import anyio
import msgspec

from toolpost.base.ids import JsonObject
from toolpost.contracts.errors import ToolFailed, UpstreamUnavailable
from toolpost.protocol.rpc import Resumption
from toolpost.upstreams.server_requests import ELICITATION, ClientChannel, check_client_can_answer
from toolpost.upstreams.transport import ServerRefused, encode

Fields = Mapping[str, msgspec.Raw]

ROUNDS_LIMIT: Final = 10
INPUT_REQUESTS_LIMIT: Final = 100
PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.25


class _InputRequest(msgspec.Struct):
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")


class _InputRequired(msgspec.Struct):
    inputRequests: dict[str, _InputRequest] | None = None  # noqa: N815 (as on the wire)
    requestState: str | None = None  # noqa: N815


_decoder = msgspec.json.Decoder(_InputRequired)


def is_input_required(fields: Fields) -> bool:
    return bytes(fields.get("resultType", b"")) == b'"input_required"'


def write_resumption(resumption: Resumption) -> bytes:
    """Write the answers as fields for the end of the parameters of a request that is made again."""
    state = b"" if resumption.state is None else b',"requestState":%b' % encode(resumption.state)
    return b',"inputResponses":%b%b' % (encode(resumption.responses), state)


def parse_input_requests(fields: Fields, client_channel: ClientChannel | None, server: str) -> dict[str, _InputRequest]:
    """Return the requests in a result by their keys; raises `UpstreamUnavailable` if the client cannot answer one of them."""
    try:
        asked = _decoder.decode(encode(fields)).inputRequests or {}
        if len(asked) > INPUT_REQUESTS_LIMIT:
            raise ServerRefused(-32600, f"it asks more than {INPUT_REQUESTS_LIMIT} things at once")
        for question in asked.values():
            check_client_can_answer(question.method, bytes(question.params), client_channel)
    except (msgspec.DecodeError, ServerRefused) as error:
        raise UpstreamUnavailable(
            f"The server `{server}` answered with a result of the kind input_required, which it was not asked for: {error}",
            hint="this is an error of the server, not of the call",
            server=server,
        ) from error
    return asked


async def answer_input_requests(
    fields: Fields, client_channel: ClientChannel, server: str, retry: Callable[[Resumption], Awaitable[Fields]]
) -> Fields:
    """Send the client the requests in a result, and make the request again with its answers, until there is a final result.

    Raises `ToolFailed` if the client refuses, `UpstreamUnavailable` after `ROUNDS_LIMIT` rounds.
    """
    pause_s = PAUSE_S
    for _ in range(ROUNDS_LIMIT):
        asked = parse_input_requests(fields, client_channel, server)
        if not asked:
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        responses = await _ask_client(asked, client_channel)
        state = _decoder.decode(encode(fields)).requestState
        fields = await retry(Resumption(responses=responses, state=state))
        if not is_input_required(fields):
            return fields
    raise UpstreamUnavailable(f"The server `{server}` asked for input {ROUNDS_LIMIT} times over.", server=server)


def _write_handshake_params(question: _InputRequest) -> bytes:
    """Write the parameters as in the handshake era, where a URL elicitation has an id."""
    params = msgspec.json.decode(question.params)
    if question.method != ELICITATION or params.get("mode") != "url" or "elicitationId" in params:
        return bytes(question.params)
    return encode({**params, "elicitationId": uuid4().hex})


async def _ask_client(asked: Mapping[str, _InputRequest], client_channel: ClientChannel) -> JsonObject:
    """Send all requests at once, and return the answers by key; the first refusal cancels the others."""
    responses: JsonObject = {}
    refusals: list[ToolFailed] = []

    async def ask(key: str, question: _InputRequest) -> None:
        try:
            raw = await client_channel.ask(question.method, _write_handshake_params(question))
            responses[key] = msgspec.json.decode(raw)
        except (ServerRefused, msgspec.DecodeError) as refusal:
            refusals.append(ToolFailed(f"The client refused {question.method}: {refusal}", method=question.method))
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for key, question in asked.items():
            tasks.start_soon(ask, key, question)
    if refusals:
        raise refusals[0]
    return responses
