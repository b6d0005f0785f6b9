"""What a server asks of its client goes to the client that made the call, on every pair of transports and eras."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters

from tests.hostile.attacks import attack
from tests.loaded import loaded, loaded_toolpost
from tests.upstreams.behind import SERVERS, text_of
from tests.upstreams.servers.asking import asking_app
from tests.upstreams.servers.http_server import serving
from tests.waiting import until
from tests.ways import IN_MEMORY, STATELESS, Way, server_environment
from toolpost.app import App, open_app, open_http
from toolpost.app.open import OpenOptions
from toolpost.endpoints.memory import open_memory_endpoint
from toolpost.settings import Config
from toolpost.upstreams.spec import ServerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_leaks"), pytest.mark.wire, pytest.mark.every_way]

FRONTS = [Way(transport, mode) for transport in ("memory", "http") for mode in ("legacy", STATELESS)]
BACKS = [Way(transport, mode) for transport in ("stdio", "http") for mode in ("legacy", STATELESS)]
ASKING = str(SERVERS / "asking.py")


class Person:
    """Answers questions as a client's user would, and remembers them."""

    def __init__(self, name: str = "Ada") -> None:
        self.name = name
        self.asked: list[str] = []
        self.given_up = 0
        self.thinks = anyio.Event()
        self.thinks.set()

    async def elicit(self, _context: Any, params: Any) -> Any:
        self.asked.append(params.message)
        try:
            await self.thinks.wait()
        except BaseException:
            self.given_up += 1
            raise
        if self.name == "nobody":
            return types.ErrorData(code=-1, message="I do not talk to servers")
        content: Any = {"name": self.name} if params.mode == "form" else None
        return types.ElicitResult(action="accept", content=content)

    async def sample(self, _context: Any, _params: Any) -> Any:
        self.asked.append("sampling")
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text=self.name), model="m")

    async def roots(self, _context: Any) -> Any:
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": f"file:///{self.name}"})])

    @property
    def callbacks(self) -> dict[str, Any]:
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
        }


@asynccontextmanager
async def client_on(app: App, way: Way, **options: Any) -> AsyncIterator[Client]:
    if way.transport == "memory":
        async with Client(open_memory_endpoint(app.call_handler, app.sdk), mode=way.mode, **options) as client:
            yield client
    else:
        async with open_http(app) as url, Client(url, mode=way.mode, **options) as client:
            yield client


@asynccontextmanager
async def asking_behind(back: Way, config: Config = IN_MEMORY, **options: Any) -> AsyncIterator[App]:
    """Open a gateway with the asking server behind it."""
    async with AsyncExitStack() as stack:
        if back.transport == "stdio":
            era = () if back.mode == STATELESS else ("handshake",)
            spec = ServerSpec(name="up", command=loaded(ASKING, *era), **options)
        else:
            app = await stack.enter_async_context(asking_app(is_stateless=back.mode == STATELESS))
            spec = ServerSpec(name="up", url=await stack.enter_async_context(serving(app)), **options)
        yield await stack.enter_async_context(
            open_app(config, bundled=False, servers=[spec], options=OpenOptions(learn_limit_s=60))
        )


@pytest.mark.parametrize("back", BACKS, ids=str)
@pytest.mark.parametrize("front", FRONTS, ids=str)
async def test_every_question_reaches_the_client_that_called(front: Way, back: Way) -> None:
    person = Person()
    async with asking_behind(back) as app, client_on(app, front, **person.callbacks) as client:
        said = {
            what: json.loads(text_of(await client.call_tool("up__ask", {"what": what})))
            for what in ("form", "url", "sampling", "roots")
        }
        twice = json.loads(text_of(await client.call_tool("up__ask_twice")))

    assert said["form"] == {"action": "accept", "content": {"name": "Ada"}}
    assert said["url"] == {"action": "accept"}
    assert said["sampling"]["content"] == {"type": "text", "text": "Ada"}
    assert said["roots"] == {"roots": [{"uri": "file:///Ada"}]}
    assert [answer.get("action") for answer in twice] == ["accept", None]
    assert person.asked == ["Who are you?", "Go there", "sampling", "roots", "Who are you?", "roots"]


@pytest.mark.parametrize("back", BACKS, ids=str)
@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_a_client_on_stdio_is_asked_too(mode: str, back: Way, tmp_path: Path) -> None:
    person = Person()
    async with AsyncExitStack() as stack:
        era = [] if back.mode == STATELESS else ["handshake"]
        program, *arguments = loaded(ASKING, *era)
        where: dict[str, Any] = {"command": program, "args": arguments}
        if back.transport == "http":
            app = await stack.enter_async_context(asking_app(is_stateless=back.mode == STATELESS))
            where = {"type": "http", "url": await stack.enter_async_context(serving(app))}
        config = tmp_path / ".mcp.json"
        config.write_text(json.dumps({"mcpServers": {"up": where}}))
        command, *arguments = loaded_toolpost("serve", "--stdio", "--config", str(config))
        server = StdioServerParameters(command=command, args=arguments, env=server_environment(), cwd=str(tmp_path))
        client = await stack.enter_async_context(Client(server, mode=mode, **person.callbacks))
        said = json.loads(text_of(await client.call_tool("up__ask_twice")))

    assert said[0]["content"] == {"name": "Ada"}
    assert person.asked == ["Who are you?", "roots"]


@pytest.mark.parametrize("back", [way for way in BACKS if way.mode == "legacy"], ids=str)
@pytest.mark.parametrize("front", FRONTS, ids=str)
async def test_a_client_that_cannot_be_asked_refuses_at_once(front: Way, back: Way) -> None:
    person = Person()
    async with asking_behind(back) as app, client_on(app, front) as client:
        mute = [json.loads(text_of(await client.call_tool("up__ask", {"what": what}))) for what in ("form", "roots")]
    async with asking_behind(back) as app, client_on(app, front, list_roots_callback=person.roots) as client:
        no_forms = json.loads(text_of(await client.call_tool("up__ask")))

    assert [answer["refused"] for answer in [*mute, no_forms]] == [-32601, -32601, -32601]
    assert person.asked == []


@pytest.mark.parametrize("front", FRONTS, ids=str)
async def test_a_stateless_server_learns_what_the_client_can(front: Way) -> None:
    async with asking_behind(Way("stdio", STATELESS)) as app, client_on(app, front) as client:
        answer = await client.call_tool("up__ask")

    assert answer.is_error
    assert "input_required" in answer.content[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("back", [way for way in BACKS if way.mode == "legacy"], ids=str)
@pytest.mark.parametrize("front", [way for way in FRONTS if way.mode == "legacy"], ids=str)
async def test_a_client_s_refusal_goes_back_as_it_is(front: Way, back: Way) -> None:
    person = Person("nobody")
    async with asking_behind(back) as app, client_on(app, front, **person.callbacks) as client:
        said = json.loads(text_of(await client.call_tool("up__ask")))

    assert said == {"refused": -1, "message": "I do not talk to servers"}


async def asked_and_left(client: Client, person: Person) -> None:
    """Call, and go away while the person thinks."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "up__ask")
        await until(lambda: person.asked)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("back", BACKS, ids=str)
@pytest.mark.parametrize("front", FRONTS, ids=str)
async def test_a_question_ends_with_its_call(front: Way, back: Way) -> None:
    """The deadline counts while a person thinks, and takes the question along where it can."""
    person = Person()
    person.thinks = anyio.Event()
    async with asking_behind(back, timeout_s=3) as app, client_on(app, front, **person.callbacks) as client:
        if front.mode == "legacy":
            answer = await client.call_tool("up__ask")
            assert "TOOL_TIMEOUT" in answer.content[0].text  # type: ignore[union-attr]
            await until(lambda: person.given_up == 1)
        else:
            await asked_and_left(client, person)
        await until(lambda: app.gateway.in_flight == 0)
        person.thinks.set()
        after = json.loads(text_of(await client.call_tool("up__ask")))

    assert after["content"] == {"name": "Ada"}


@pytest.mark.parametrize("front", [way for way in FRONTS if way.mode == "legacy"], ids=str)
@pytest.mark.parametrize("back", [way for way in BACKS if way.mode == "legacy"], ids=str)
async def test_a_question_that_the_server_takes_back_is_given_up(front: Way, back: Way) -> None:
    person = Person()
    person.thinks = anyio.Event()
    async with asking_behind(back) as app, client_on(app, front, **person.callbacks) as client:
        answer = await client.call_tool("up__leave")
        await until(lambda: person.given_up == 1)

    assert text_of(answer) == "left"


@attack(
    "server",
    "asks questions in two callers' calls at once",
    "each reaches the client that called, and no other",
)
@pytest.mark.parametrize("back", [way for way in BACKS if way.mode == "legacy"], ids=str)
@pytest.mark.parametrize("fronts", [("legacy", "legacy"), ("legacy", STATELESS), (STATELESS, STATELESS)], ids=str)
async def test_one_caller_s_question_is_never_another_s(back: Way, fronts: tuple[str, str]) -> None:
    """On a pipe nothing says whose a question is: with two clients it is refused. Over HTTP its stream says it."""
    ada, bob = Person("Ada"), Person("Bob")
    async with (
        asking_behind(back) as app,
        client_on(app, Way("memory", fronts[0]), **ada.callbacks) as first,
        client_on(app, Way("http", fronts[1]), **bob.callbacks) as second,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(second.call_tool, "up__wait", {"seconds": 2.0})
        await until(lambda: app.gateway.in_flight == 1)
        said = json.loads(text_of(await first.call_tool("up__ask")))
        apart = json.loads(text_of(await first.call_tool("up__ask_apart")))

    assert bob.asked == []
    assert apart["refused"] == -32603
    if back.transport == "http":
        assert said["content"] == {"name": "Ada"}
    else:
        assert said["refused"] == -32603


@pytest.mark.parametrize("front", [Way("memory", "legacy"), Way("memory", STATELESS), Way("http", "legacy")], ids=str)
@pytest.mark.parametrize("tool", ["ask", "ask_apart"])
@pytest.mark.parametrize("back", [way for way in BACKS if way.mode == "legacy"], ids=str)
async def test_calls_of_one_client_side_by_side_are_all_answered(front: Way, tool: str, back: Way) -> None:
    person = Person()
    if front.mode != STATELESS:  # there a question is the result of one of the calls, which then waits for the answer
        person.thinks = anyio.Event()
    answers: list[Any] = []
    async with asking_behind(back) as app, client_on(app, front, **person.callbacks) as client:

        async def call(name: str, arguments: dict[str, Any]) -> None:
            answers.append(text_of(await client.call_tool(name, arguments)))
            if len(answers) == 3:  # those that ask nothing: a question outlives the calls that were there by chance
                person.thinks.set()

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(call, f"up__{tool}", {})
                tasks.start_soon(call, "up__wait", {"seconds": 0.05})

    assert len(person.asked) == 3
    assert sorted(answers)[3:] == ['{"action": "accept", "content": {"name": "Ada"}}'] * 3


# The state that a client carries


@pytest.mark.parametrize("back", BACKS, ids=str)
@pytest.mark.parametrize("front", [way for way in FRONTS if way.mode == STATELESS], ids=str)
async def test_a_state_is_good_for_its_call_alone(front: Way, back: Way) -> None:
    person = Person()
    refusals: dict[str, MCPError] = {}
    async with asking_behind(back) as app, client_on(app, front, **person.callbacks) as client:

        async def call(tool: str, state: str, **responses: Any) -> Any:
            return await client.session.call_tool(
                tool, {}, input_responses=responses or None, request_state=state, allow_input_required=True
            )

        async def refused(why: str, tool: str, state: str) -> None:
            with pytest.raises(MCPError) as refusal:
                await call(tool, state)
            refusals[why] = refusal.value

        asked = await client.session.call_tool("up__ask", {}, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        state, key = asked.request_state or "", next(iter(asked.input_requests or {}))
        await refused("forged", "up__ask", state[:-6] + "AAAA" + state[-2:])
        await refused("forged", "up__ask", "not even base64 ½")
        await refused("foreign", "up__wait", state)
        again = await call("up__ask", state)
        assert isinstance(again, types.InputRequiredResult), "what was not answered is asked again"
        answer = types.ElicitResult(action="decline")
        ended = await call("up__ask", again.request_state or "", **{key: answer})
        if back.mode == "legacy":
            await refused("used", "up__ask", state)
            await refused("used", "up__ask", again.request_state or "")

    assert json.loads(text_of(ended)) == {"action": "decline"}
    for why, refusal in refusals.items():
        assert refusal.code == -32602
        assert refusal.error.data["reason"] == why


@attack(
    "caller",
    "brings back the request state of another caller's call",
    "it is refused",
)
async def test_a_state_is_good_for_its_caller_alone() -> None:
    person = Person()
    async with (
        asking_behind(Way("stdio", "legacy")) as app,
        client_on(app, Way("memory", STATELESS), **person.callbacks) as client,
        client_on(app, Way("memory", STATELESS), **person.callbacks) as thief,
    ):
        asked = await client.session.call_tool("up__ask", {}, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        with pytest.raises(MCPError) as refusal:
            await thief.session.call_tool("up__ask", {}, request_state=asked.request_state)

    assert refusal.value.error.data["reason"] == "foreign"


async def test_a_call_that_ended_while_it_was_held_says_how() -> None:
    person = Person()
    async with (
        asking_behind(Way("stdio", "legacy"), timeout_s=2) as app,
        client_on(app, Way("http", STATELESS), **person.callbacks) as client,
    ):
        asked = await client.session.call_tool("up__ask", {}, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        await until(lambda: app.gateway.in_flight == 0)
        late = await client.session.call_tool("up__ask", {}, request_state=asked.request_state)

    assert late.is_error
    assert "TOOL_TIMEOUT" in late.content[0].text  # type: ignore[union-attr]


async def test_a_client_that_leaves_takes_its_held_calls_along() -> None:
    person = Person()
    async with asking_behind(Way("stdio", "legacy")) as app:
        async with client_on(app, Way("memory", STATELESS), **person.callbacks) as client:
            asked = await client.session.call_tool("up__ask", {}, allow_input_required=True)
            assert isinstance(asked, types.InputRequiredResult)
            assert app.gateway.in_flight == 1
        await until(lambda: app.gateway.in_flight == 0)


async def test_only_so_many_calls_may_wait_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.endpoints.input_rounds.WAITING_LIMIT_PER_CALLER", 1)
    person = Person()
    async with (
        asking_behind(Way("stdio", "legacy")) as app,
        client_on(app, Way("memory", STATELESS), **person.callbacks) as client,
    ):
        first = await client.session.call_tool("up__ask", {}, allow_input_required=True)
        second = await client.session.call_tool("up__ask", {}, allow_input_required=True)

    assert isinstance(first, types.InputRequiredResult)
    assert isinstance(second, types.CallToolResult)
    assert json.loads(text_of(second))["refused"] == -32603
