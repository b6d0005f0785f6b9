"""Calls of an API's tools through the gateway, by the official client, to an API on a real socket."""

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.hostile.attacks import attack
from tests.parts.openapi.fake_api import FakeApi, Reply, answers, describe, open_fake_api, open_gateway, takes
from tests.waiting import until
from tests.ways import QUICK_WAYS, Way
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.settings.network import NetworkSettings
from toolpost.testing import data_of, error_of

pytestmark = [pytest.mark.anyio, pytest.mark.wire]

PET = {
    "type": "object",
    "properties": {"id": {"type": "integer", "readOnly": True}, "name": {"type": "string"}},
    "required": ["id", "name"],
}
PETS = describe(
    {
        "method": "get",
        "path": "/pets",
        "operationId": "listPets",
        "summary": "List all pets.",
        "parameters": [takes("query", "page", {"type": "integer"}), takes("query", "tags", {"type": "array"})],
        "responses": answers({"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}),
    },
    {
        "method": "post",
        "path": "/pets",
        "operationId": "addPet",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
        },
        "responses": answers({"$ref": "#/components/schemas/Pet"}, "201"),
    },
    {
        "method": "delete",
        "path": "/pets/{id}",
        "operationId": "deletePet",
        "parameters": [takes("path", "id"), takes("header", "X-Reason"), takes("cookie", "theme")],
        "responses": {"204": {"description": "deleted"}},
    },
    {"method": "get", "path": "/photo", "operationId": "photo"},
    components={"schemas": {"Pet": PET}},
)


@asynccontextmanager
async def open_client(
    api: FakeApi, folder: Path, described: dict[str, Any] = PETS, **settings: Any
) -> AsyncIterator[Client]:
    async with (
        open_gateway(described, settings.pop("base", api.url), folder, **settings) as app,
        Client(open_memory_endpoint(app.call_handler, app.sdk)) as client,
    ):
        yield client


@pytest.mark.parametrize("way", QUICK_WAYS, ids=str)
async def test_tools_are_listed_and_called(way: Way, api: FakeApi, tmp_path: Path) -> None:
    api.replies = {
        "GET /v1/pets": Reply(body=[{"id": 1, "name": "Rex"}]),
        "POST /v1/pets": Reply(status=201, body={"id": 2, "name": "Tom", "extra": [1]}),
        "DELETE /v1/pets/a%2Fb": Reply(status=204),
    }
    async with open_gateway(PETS, f"{api.url}/v1/", tmp_path) as app, way.client_of(app) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"pets__listPets", "pets__addPet", "pets__deletePet", "pets__photo"} <= listed.keys()
        assert listed["pets__listPets"].description == "List all pets."
        hints = listed["pets__deletePet"].annotations
        assert hints is not None
        assert (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint) == (False, True, True)
        found = await client.call_tool("pets__listPets", {"tags": ["a b", "c&d"]})
        assert data_of(found) == {"result": [{"id": 1, "name": "Rex"}]}
        assert api.last.target == "/v1/pets?tags=a%20b&tags=c%26d"
        added = await client.call_tool("pets__addPet", {"body": {"name": "Tom"}})
        assert data_of(added) == {"id": 2, "name": "Tom", "extra": [1]}
        assert (api.last.body, api.last.headers["content-type"]) == (b'{"name":"Tom"}', "application/json")
        arguments = {"id": "a/b", "X-Reason": "ill", "theme": "dark; admin=1"}
        assert data_of(await client.call_tool("pets__deletePet", arguments)) == {"status": 204}
        assert (api.last.method, api.last.headers["x-reason"]) == ("DELETE", "ill")
        assert api.last.headers["cookie"] == "theme=dark%3B%20admin%3D1"
        count = len(api.seen)
        refused = error_of(await client.call_tool("pets__addPet", {"body": {"id": 1, "name": "x"}}))
        assert refused["code"] == "INVALID_PARAMS"
        escaped = error_of(await client.call_tool("pets__deletePet", {"id": "../shops"}))
        assert escaped["code"] == "INVALID_PARAMS"
        assert len(api.seen) == count


async def test_errors_say_what_the_api_said_within_bounds(api: FakeApi, tmp_path: Path) -> None:
    api.replies = {
        "GET /pets": Reply(status=404, body={"error": {"message": "no pets here", "code": 7}}),
        "POST /pets": Reply(status=422, body={"errors": [{"detail": "name is taken"}, {"detail": "name is rude"}]}),
        "GET /photo": Reply(status=500, body=b"<html>" + b"x" * 100_000, headers={"content-type": "text/html"}),
        "DELETE /pets/1": Reply(status=429, body={"message": "slow down"}, headers={"retry-after": "7"}),
        "DELETE /pets/2": Reply(status=401, body=b""),
    }
    async with open_client(api, tmp_path) as client:
        missing = error_of(await client.call_tool("pets__listPets", {}))
        assert missing["code"] == "NOT_FOUND"
        assert missing["message"] == "GET /pets answered 404: no pets here"
        assert missing["details"] == {"status": 404, "body": {"error": {"message": "no pets here", "code": 7}}}
        wrong = error_of(await client.call_tool("pets__addPet", {"body": {"name": "x"}}))
        assert wrong["code"] == "INVALID_REQUEST"
        assert wrong["message"].endswith("422: name is taken; name is rude")
        broken = error_of(await client.call_tool("pets__photo", {}))
        assert (broken["code"], broken["message"]) == ("HANDLER_ERROR", "GET /photo answered 500.")
        assert len(json.dumps(broken)) < 5_000
        busy = error_of(await client.call_tool("pets__deletePet", {"id": "1"}))
        assert (busy["code"], busy["details"]["retryAfterMs"]) == ("QUEUE_OVERLOADED", 7_000)
        assert "`security`" in error_of(await client.call_tool("pets__deletePet", {"id": "2"}))["hint"]


async def test_an_answer_that_breaks_its_schema_is_refused_unless_results_are_off(api: FakeApi, tmp_path: Path) -> None:
    api.replies = {"GET /pets": Reply(body=[{"id": "one"}])}
    async with open_client(api, tmp_path) as client:
        broken = error_of(await client.call_tool("pets__listPets", {}))
        assert (broken["code"], broken["details"]["result"]) == (
            "OUTPUT_VALIDATION_FAILED",
            {"result": [{"id": "one"}]},
        )
    async with open_client(api, tmp_path, results="off") as client:
        assert data_of(await client.call_tool("pets__listPets", {})) == [{"id": "one"}]


async def test_answers_that_are_not_json(api: FakeApi, tmp_path: Path) -> None:
    async with open_client(api, tmp_path) as client:
        api.replies["GET /photo"] = Reply(body=b"\x89PNG\x00", headers={"content-type": "image/png"})
        image = await client.call_tool("pets__photo", {})
        assert data_of(image) == {"status": 200, "mediaType": "image/png", "bytes": 5}
        assert image.content[1].type == "image"
        api.replies["GET /photo"] = Reply(body=b"%PDF\x00\xff", headers={"content-type": "application/pdf"})
        assert (await client.call_tool("pets__photo", {})).content[1].type == "resource"
        api.replies["GET /photo"] = Reply(body="häß".encode(), headers={"content-type": "text/plain; charset=utf-8"})
        assert (await client.call_tool("pets__photo", {})).content[0].text == '"häß"'  # type: ignore[union-attr]
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        api.replies["GET /photo"] = Reply(body=gzip.compress(b'{"small": true}'), headers=headers)
        assert data_of(await client.call_tool("pets__photo", {})) == {"small": True}
        api.replies["GET /photo"] = Reply(
            body=b"data: one\n\ndata: two\n\n", headers={"content-type": "text/event-stream"}
        )
        assert "one\\ntwo" in (await client.call_tool("pets__photo", {})).content[0].text  # type: ignore[union-attr]
        api.replies["GET /photo"] = Reply(body=b"{broken", headers={"content-type": "application/json"})
        assert "{broken" in (await client.call_tool("pets__photo", {})).content[0].text  # type: ignore[union-attr]


@attack("server", "answer without end, or with a compressed bomb", "reading ends at a limit")
async def test_long_answers_are_refused(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.parts.openapi.api.RESPONSE_LIMIT_BYTES", 10_000)
    async with open_client(api, tmp_path) as client:
        api.replies["GET /photo"] = Reply(body=b"x" * 20_000)
        assert error_of(await client.call_tool("pets__photo", {}))["code"] == "UPSTREAM_UNAVAILABLE"
        bomb = gzip.compress(b"0" * 5_000_000)
        assert len(bomb) < 10_000
        api.replies["GET /photo"] = Reply(body=bomb, headers={"content-encoding": "gzip"})
        assert "more than 10000 bytes" in error_of(await client.call_tool("pets__photo", {}))["message"]


@attack(
    "server", "redirect a request with credentials to another origin, or out of `base` by dots", "it is not followed"
)
async def test_redirects_are_followed_at_the_same_origin_only(api: FakeApi, tmp_path: Path) -> None:
    async with open_fake_api() as other, open_client(api, tmp_path, headers={"X-Key": "secret"}) as client:
        api.replies["GET /photo"] = Reply(status=302, headers={"location": "/other?a=1"})
        api.replies["GET /other"] = Reply(body={"moved": True})
        assert data_of(await client.call_tool("pets__photo", {})) == {"moved": True}
        assert api.last.headers["x-key"] == "secret"
        for place in (f"{other.url}/photo", other.url.replace("http:", ""), f"{api.url.rsplit(':', 1)[0]}:1/"):
            api.replies["GET /photo"] = Reply(status=307, headers={"location": place})
            refused = error_of(await client.call_tool("pets__photo", {}))
            assert (refused["code"], refused["details"]["status"]) == ("UPSTREAM_UNAVAILABLE", 307)
        assert other.seen == []
        count = len(api.seen)
        places = [
            f"{api.url}/a/../../admin",
            f"{api.url}/%2e%2e/admin",
            "/a/%2E./admin",
            "/a%2f..%2fadmin",
            "/..%5cadmin",
            "/a/..;/admin",
            "/a/..%3bx/admin",
        ]
        for place in places:
            api.replies["GET /photo"] = Reply(status=302, headers={"location": place})
            assert error_of(await client.call_tool("pets__photo", {}))["code"] == "UPSTREAM_UNAVAILABLE", place
        assert len(api.seen) == count + len(places), "none was followed"
        api.replies["GET /photo"] = Reply(status=302, headers={"location": "/photo"})
        assert "more than 5 times" in error_of(await client.call_tool("pets__photo", {}))["message"]
        api.replies["POST /pets"] = Reply(status=308, headers={"location": "/other"})
        assert "not repeated" in error_of(await client.call_tool("pets__addPet", {"body": {"name": "x"}}))["message"]


async def test_a_cookie_of_one_answer_is_not_sent_with_the_next_request(api: FakeApi, tmp_path: Path) -> None:
    api.replies["GET /photo"] = Reply(body={}, headers={"set-cookie": "session=ann; Path=/"})
    async with open_client(api, tmp_path) as client:
        for _ in range(2):
            await client.call_tool("pets__photo", {})
        assert "cookie" not in api.last.headers


@pytest.mark.parametrize(
    ("link", "body"),
    [
        ('<{url}/pets?page=2>; rel="prev", <{url}/pets?page=3&tags=a>; rel="next"', []),
        ("", {"next": "{url}/pets?tags=a&page=3"}),
        ("", {"_links": {"next": {"href": "/pets?page=3&tags=a"}}}),
    ],
)
async def test_the_next_page_is_named_by_arguments(link: str, body: Any, api: FakeApi, tmp_path: Path) -> None:
    shown = json.loads(json.dumps(body).replace("{url}", api.url))
    api.replies["GET /pets"] = Reply(body=shown, headers={"link": link.replace("{url}", api.url)} if link else {})
    async with open_client(api, tmp_path, results="off") as client:
        answer = await client.call_tool("pets__listPets", {"tags": ["a"]})
        assert answer.content[1].text == 'There is a next page: call again with {"page":3}.'  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "url", ["https://evil.example/pets?page=2", "/shops?page=2", "/pets?unknown=2", "/pets?tags=a"]
)
async def test_no_page_is_named_that_a_call_would_not_reach(url: str, api: FakeApi, tmp_path: Path) -> None:
    api.replies["GET /pets"] = Reply(body=[], headers={"link": f'<{url}>; rel="next"'})
    async with open_client(api, tmp_path) as client:
        assert len((await client.call_tool("pets__listPets", {"tags": ["a"]})).content) == 1


async def test_a_call_ends_at_its_time_limit_and_closes_its_connection(api: FakeApi, tmp_path: Path) -> None:
    api.replies["GET /photo"] = Reply(delay_s=30)
    async with open_client(api, tmp_path, timeout_s=1) as client:
        assert error_of(await client.call_tool("pets__photo", {}))["code"] == "TOOL_TIMEOUT"
        await until(lambda: api.lost)


async def test_an_api_that_is_down_is_named(api: FakeApi, tmp_path: Path) -> None:
    async with open_client(api, tmp_path, base="http://127.0.0.1:1") as client:
        error = error_of(await client.call_tool("pets__photo", {}))
        assert error["code"] == "UPSTREAM_UNAVAILABLE"
        assert "cannot connect" in error["message"]


async def test_requests_go_through_the_proxy(api: FakeApi, tmp_path: Path) -> None:
    network = NetworkSettings(proxy=api.url, no_proxy=[])
    async with open_client(api, tmp_path, base="http://api.example/v1", network=network) as client:
        await client.call_tool("pets__photo", {})
        assert api.last.target == "http://api.example/v1/photo"


async def test_an_api_without_its_document_fails_alone(api: FakeApi, tmp_path: Path) -> None:
    async with open_gateway(PETS, api.url, tmp_path, document="nowhere.json") as app:
        failed = next(plugin for plugin in app.plugins.plugins if plugin.name == "pets")
        assert failed.state == "failed"
        assert "cannot be read" in failed.problems[0]
    async with open_gateway(PETS, api.url, tmp_path, security={"none": "x"}) as app:
        failed = next(plugin for plugin in app.plugins.plugins if plugin.name == "pets")
        assert "no security scheme of this name" in failed.problems[0]


async def test_a_document_at_a_url_is_fetched_and_its_last_copy_used_when_it_is_gone(
    api: FakeApi, tmp_path: Path
) -> None:
    api.replies["GET /openapi.json"] = Reply(body=PETS)
    for _ in range(2):
        async with open_client(api, tmp_path, document=f"{api.url}/openapi.json") as client:
            assert "pets__photo" in {tool.name for tool in (await client.list_tools()).tools}
        api.replies["GET /openapi.json"] = Reply(status=503)
