"""The router of all JSON APIs: paths, bodies, errors with their statuses, streams, and the description of every part's API."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx2
import jsonschema
import msgspec
import pytest

from tests.ways import IN_MEMORY
from toolpost import ToolpostError
from toolpost.app import open_http
from toolpost.app.serve import open_asgi
from toolpost.contracts import errors
from toolpost.contracts.errors import ErrorCode
from toolpost.endpoints.http.exchange import SSE_HEADERS
from toolpost.endpoints.http.routes import (
    STREAMED,
    Api,
    EventSchema,
    HttpContext,
    JsonApi,
    Route,
    RouteRequest,
    Routes,
)
from toolpost.endpoints.http.statuses import STATUSES, status_of
from toolpost.host.host import Host
from toolpost.manifest import Part
from toolpost.testing import open_test_app

pytestmark = [pytest.mark.anyio, pytest.mark.wire]


class Shelf(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A shelf with books."""

    book_count: int
    label: str = ""


class Stale(errors.CallerError):
    """An error of a part, with a code of its own."""

    code = ErrorCode.STALE_LEASE


FAILURES: dict[str, ToolpostError] = {
    "cancelled": errors.CallCancelled("it was cancelled"),
    "stale": Stale("it is another's now"),
    "missing": errors.NotFound("there is none"),
    "full": errors.QueueOverloaded("too many", retry_s=2.0, is_own=False),
    "own": errors.QueueOverloaded("too many of yours", retry_s=2.0, is_own=True),
    "away": errors.UpstreamUnavailable("it is away"),
    "slow": errors.ToolTimedOut("it took too long", timeout_ms=1000),
    "broken": errors.ToolFailed("it failed"),
    "absent": errors.CapabilityMissing("it is not installed"),
    "config": errors.BadConfiguration("it cannot be used"),
}
LOST: dict[str, ToolpostError] = {
    "store": errors.StoreUnavailable("the store postgresql://db.example/toolpost cannot be reached"),
    "value": errors.GatewayError("the store postgresql://db.example/toolpost failed: value 99 out of int64 range"),
}
EXPECTED = {
    "cancelled": 409,
    "stale": 409,
    "missing": 404,
    "full": 503,
    "own": 429,
    "away": 503,
    "slow": 504,
    "broken": 502,
    "absent": 503,
    "config": 400,
}


def routes_of(http: HttpContext) -> Sequence[Routes]:
    async def show_book(request: RouteRequest) -> object:
        return request.path

    async def fill(request: RouteRequest) -> Shelf:
        body: Shelf = request.body
        return Shelf(book_count=body.book_count + 1, label=request.path["shelf"])

    async def fail(request: RouteRequest) -> object:
        raise FAILURES[request.path["kind"]]

    async def crash(_: RouteRequest) -> object:
        raise KeyError("a bug")

    async def lose(request: RouteRequest) -> object:
        raise LOST[request.path["kind"]]

    async def answer_object(_: RouteRequest) -> object:
        return object()

    async def count(request: RouteRequest) -> object:
        await request.http.send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        await request.http.send({"type": "http.response.body", "body": b"data: 1\n\n"})
        return STREAMED

    book = "/api/shelves/{shelf}/books/{book}"
    return [
        JsonApi(
            http,
            [
                Route(method="GET", path=book, handler=show_book, query={"page": int}),
                Route(method="DELETE", path=book, handler=show_book),
                Route(method="POST", path="/api/shelves/{shelf}", handler=fill, body=Shelf, response=Shelf, status=201),
                Route(method="GET", path="/api/failures/{kind}", handler=fail),
                Route(method="GET", path="/api/crash", handler=crash),
                Route(method="GET", path="/api/lost/{kind}", handler=lose),
                Route(method="GET", path="/api/object", handler=answer_object),
                Route(method="GET", path="/api/count", handler=count, events=EventSchema("Count", int)),
            ],
        )
    ]


@asynccontextmanager
async def open_shelves(_: Host) -> AsyncIterator[Sequence[object]]:
    yield [Api(routes_of)]


@asynccontextmanager
async def shelves() -> AsyncIterator[httpx2.AsyncClient]:
    part = Part(name="shelves", opens=open_shelves)
    async with open_test_app(config=IN_MEMORY, parts=[part]) as app, open_http(app) as url:
        async with httpx2.AsyncClient(base_url=url.removesuffix("/mcp"), timeout=30) as http:
            yield http


def test_every_code_has_a_status() -> None:
    assert set(STATUSES) == set(ErrorCode)
    assert {name: status_of(failure) for name, failure in FAILURES.items()} == EXPECTED


async def test_failures_are_sent_with_the_status_of_their_code() -> None:
    async with shelves() as http:
        answers = {name: await http.get(f"/api/failures/{name}") for name in FAILURES}
        bug = await http.get("/api/crash")

    assert {name: answer.status_code for name, answer in answers.items()} == EXPECTED
    assert {name: answer.json()["error"]["code"] for name, answer in answers.items()} == {
        name: failure.code.value for name, failure in FAILURES.items()
    }
    assert {name for name, answer in answers.items() if answer.headers.get("retry-after") == "2"} == {"full", "own"}
    assert (bug.status_code, bug.json()["error"]["code"]) == (500, "INTERNAL")
    assert "a bug" not in bug.text


async def test_neither_the_store_nor_its_values_are_in_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    async with shelves() as http:
        answers = {name: await http.get(f"/api/lost/{name}") for name in LOST}

    assert [answer.status_code for answer in answers.values()] == [500, 500]
    assert answers["store"].json() == {"error": {"code": "INTERNAL", "message": "The store cannot be reached."}}
    assert "db.example" not in answers["value"].text
    assert "99" not in answers["value"].text
    assert "db.example/toolpost failed: value 99" in caplog.text


async def test_what_json_does_not_have_is_an_error_of_the_handler() -> None:
    async with shelves() as http:
        answer = await http.get("/api/object")

    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "INTERNAL")


async def test_names_in_a_path_stand_for_one_segment() -> None:
    async with shelves() as http:
        found = await http.get("/api/shelves/a%20b/books/7")
        others = [
            await http.get(path)
            for path in (
                "/api/shelves/a/books/",
                "/api/shelves/a/books/7/8",
                "/api/shelves/{shelf}/books",
                "/api",
                "/api/none",
            )
        ]
        wrong = await http.put("/api/shelves/a/books/7")

    assert found.json() == {"shelf": "a b", "book": "7"}
    assert [answer.status_code for answer in others] == [404] * 5
    assert all("/api/openapi.json" in answer.json()["error"]["message"] for answer in others)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, DELETE")


async def test_bodies_are_decoded_as_the_type_of_their_route() -> None:
    async with shelves() as http:
        filled = await http.post("/api/shelves/high", json={"bookCount": 3})
        refused = [
            await http.post("/api/shelves/high", json={"bookCout": 3}),
            await http.post("/api/shelves/high", json={"bookCount": "three"}),
            await http.post("/api/shelves/high", json=[[[]]]),
            await http.post("/api/shelves/high", content=b"{", headers={"content-type": "application/json"}),
            await http.post("/api/shelves/high", content=b"", headers={"x-toolpost": "1"}),
        ]

    assert (filled.status_code, filled.json()) == (201, {"bookCount": 4, "label": "high"})
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in refused] == [
        (400, "INVALID_REQUEST")
    ] * 5
    assert refused[0].json()["error"]["hint"] == "did you mean `bookCount`?"


@pytest.mark.parametrize(("method", "path"), [("POST", "/api/shelves/high"), ("DELETE", "/api/shelves/a/books/7")])
async def test_what_a_form_could_send_is_refused(method: str, path: str) -> None:
    async with shelves() as http:
        form = await http.request(method, path, content=b"{}", headers={"content-type": "text/plain"})
        marked = await http.request(method, path, content=b'{"bookCount":1}', headers={"x-toolpost": "1"})

    assert (form.status_code, marked.is_success) == (415, True)


async def test_a_client_that_leaves_in_its_body_changes_nothing() -> None:
    bodies: list[object] = []

    def make(http: HttpContext) -> Sequence[Routes]:
        async def note(request: RouteRequest) -> object:
            bodies.append(request.body)
            return {}

        return [JsonApi(http, [Route(method="POST", path="/api/noted", handler=note)])]

    @asynccontextmanager
    async def open_noted(_: Host) -> AsyncIterator[Sequence[object]]:
        yield [Api(make)]

    async with (
        open_test_app(config=IN_MEMORY, parts=[Part(name="noted", opens=open_noted)]) as app,
        open_asgi(app) as endpoint,
    ):
        events = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

        async def receive() -> object:
            return next(events)

        async def send(_: object) -> None:
            return

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/api/noted", "headers": headers, "query_string": b""}
        await endpoint(scope, receive, send)

    assert bodies == []


async def test_the_apis_of_all_parts_are_described() -> None:
    async with shelves() as http:
        document = (await http.get("/api/openapi.json")).json()
        streamed = await http.get("/api/count")

    paths = document["paths"]
    assert {
        "/api/servers",
        "/api/servers/{name}/{action}",
        "/api/console/servers",
        "/api/threads",
        "/api/tasks",
    } <= set(paths)
    operations = [each for methods in paths.values() for each in methods.values()]
    assert all(each["summary"] and each["responses"]["default"] for each in operations)
    book = paths["/api/shelves/{shelf}/books/{book}"]["get"]
    assert (book["summary"], book["tags"]) == ("show book", ["shelves"])
    assert [(each["name"], each["in"], each["schema"]["type"]) for each in book["parameters"]] == [
        ("page", "query", "integer"),
        ("shelf", "path", "string"),
        ("book", "path", "string"),
    ]
    fill = paths["/api/shelves/{shelf}"]["post"]
    schema = fill["requestBody"]["content"]["application/json"]["schema"]
    assert schema == fill["responses"]["201"]["content"]["application/json"]["schema"]
    jsonschema.validate({"bookCount": 1}, {**schema, "components": document["components"]})
    assert streamed.headers["content-type"] == "text/event-stream"
    assert list(paths["/api/count"]["get"]["responses"]["200"]["content"]) == ["text/event-stream"]
