"""OpenAI-compatible endpoints on real sockets, good ones and bad ones."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.parts.models.endpoints import FakeEndpoint
from tests.waiting import until
from toolpost.parts.models.endpoint import (
    Api,
    Completion,
    Endpoint,
    EndpointFailed,
    ModelImage,
    ModelPrompt,
    PromptMessage,
    parse_retry_after,
)

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

APIS: tuple[Api, ...] = ("chat", "responses")
HAIKU = ModelPrompt.of_text("haiku", system="be brief", max_tokens=50, temperature=0.5)


@asynccontextmanager
async def opened(endpoint: FakeEndpoint, model: str, api: Api, key: str | None = None) -> AsyncIterator[Endpoint]:
    client = Endpoint(endpoint.url, model=model, api=api, key=key)
    try:
        yield client
    finally:
        await client.aclose()


async def failure_of(endpoint: FakeEndpoint, model: str, api: Api, *, streams: bool) -> EndpointFailed:
    async with opened(endpoint, model, api) as client:
        with anyio.fail_after(20), pytest.raises(EndpointFailed) as caught:
            await client.complete(HAIKU, (lambda _text: None) if streams else None)
    return caught.value


@pytest.mark.parametrize("api", APIS)
async def test_an_answer_as_a_whole(endpoint: FakeEndpoint, api: Api) -> None:
    async with opened(endpoint, "good", api, key="sk-secret") as client:
        completion = await client.complete(HAIKU)

    assert completion == Completion(text="the answer of good", finish="stop", input_tokens=11, output_tokens=5)
    assert b"authorization: Bearer sk-secret" in endpoint.heads[0]
    (sent,) = endpoint.requests
    if api == "chat":
        assert endpoint.heads[0].startswith(b"POST /v1/chat/completions ")
        assert sent["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "haiku"}]
        assert (sent["max_tokens"], sent["temperature"]) == (50, 0.5)
    else:
        assert endpoint.heads[0].startswith(b"POST /v1/responses ")
        assert sent["input"] == [{"role": "user", "content": [{"type": "input_text", "text": "haiku"}]}]
        assert (sent["instructions"], sent["max_output_tokens"], sent["store"]) == ("be brief", 50, False)


@pytest.mark.parametrize("streams", [False, True])
async def test_a_model_that_wants_another_name_for_the_limit_gets_it(endpoint: FakeEndpoint, streams: bool) -> None:
    async with opened(endpoint, "new_limit", "chat") as client:
        answers = [(await client.complete(HAIKU, (lambda _text: None) if streams else None)).text for _ in range(2)]

    assert [answer.strip() for answer in answers] == ["the answer of new_limit"] * 2
    assert [(sent.get("max_tokens"), sent.get("max_completion_tokens")) for sent in endpoint.requests] == [
        (50, None),
        (None, 50),
        (None, 50),
    ]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("model", ["good", "ignores_stream"])
async def test_an_answer_as_a_stream(endpoint: FakeEndpoint, api: Api, model: str) -> None:
    heard: list[str] = []
    async with opened(endpoint, model, api) as client:
        completion = await client.complete(HAIKU, heard.append)

    assert completion.text.strip() == f"the answer of {model}"
    assert "".join(heard) == completion.text
    assert len(heard) == (4 if model == "good" else 1)
    assert (completion.input_tokens, completion.output_tokens) == (11, 5)


async def test_images_are_sent_in_the_form_of_each_api(endpoint: FakeEndpoint) -> None:
    message = PromptMessage(role="user", content=["what is this?", ModelImage(data="aGk=", mime_type="image/png")])
    for api in APIS:
        async with opened(endpoint, "good", api) as client:
            await client.complete(ModelPrompt(messages=[message]))

    chat, responses = endpoint.requests
    assert chat["messages"][0]["content"][1] == {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,aGk="},
    }
    assert responses["input"][0]["content"][1] == {"type": "input_image", "image_url": "data:image/png;base64,aGk="}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("closes", "closed the connection"),
        ("garbage", "breaks the API's schema"),
        ("not_http", "not proper HTTP"),
        ("broken", "status 500: out of memory"),
        ("empty", "has no"),
        ("null_text", "has no text"),
    ],
)
async def test_every_bad_answer_counts_against_the_endpoint(
    endpoint: FakeEndpoint, api: Api, model: str, said: str, *, streams: bool
) -> None:
    failure = await failure_of(endpoint, model, api, streams=streams)
    assert said in failure.reason
    assert (failure.counts, failure.retry_s) == (True, None)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("dies_in_stream", "in the middle of its answer"),
        ("ends_in_stream", "in the middle of the answer"),
        ("error_in_stream", "ended with an error"),
        ("endless", "too long"),
    ],
)
async def test_a_stream_that_does_not_end_well_is_no_answer(
    endpoint: FakeEndpoint, api: Api, model: str, said: str
) -> None:
    assert said in (await failure_of(endpoint, model, api, streams=True)).reason


@pytest.mark.parametrize("api", APIS)
async def test_a_refusal_says_when_to_come_back_and_whose_fault_it_is(endpoint: FakeEndpoint, api: Api) -> None:
    busy = await failure_of(endpoint, "very_busy", api, streams=False)
    refused = await failure_of(endpoint, "refuses", api, streams=False)

    assert (busy.counts, busy.retry_s) == (True, 3000)
    assert (refused.counts, refused.reason) == (False, "it answered with status 400: temperature is too high")


async def test_numbers_of_tokens_that_make_no_sense_are_not_believed(endpoint: FakeEndpoint) -> None:
    async with opened(endpoint, "odd_usage", "chat") as client:
        completion = await client.complete(HAIKU)
    assert (completion.text, completion.input_tokens, completion.output_tokens) == ("fine", None, None)


@pytest.mark.parametrize("model", ["hangs", "hangs_in_stream"])
async def test_cancelling_closes_the_connection(endpoint: FakeEndpoint, model: str) -> None:
    async with opened(endpoint, model, "chat") as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.complete, HAIKU, (lambda _text: None) if "stream" in model else None)
            await until(lambda: endpoint.requests)
            tasks.cancel_scope.cancel()
        await until(lambda: endpoint.closed)


async def test_an_endpoint_that_is_not_there() -> None:
    client = Endpoint("http://127.0.0.1:9/v1", model="x")
    with pytest.raises(EndpointFailed, match="cannot connect"):
        await client.complete(HAIKU)
    await client.aclose()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5", 5),
        (" 0 ", 0),
        ("99999999999999", 3600),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("", None),
        ("Thu, 99 Foo 1970", None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert parse_retry_after(value, now=10.0) == seconds


def test_retry_after_with_the_real_time() -> None:
    assert parse_retry_after("Fri, 01 Jan 2100 00:00:00 GMT", time.time()) == 3600
