"""`toolpost call` at a terminal: the questions of a tool are answered there. Real terminals, real processes."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import TOOLPOST, Run, Server
from tests.cli.terminal import open_terminal
from tests.upstreams.behind import SERVERS

pytestmark = pytest.mark.wire

ASKING = '''
from typing import Annotated, Literal

import anyio
from pydantic import BaseModel, Field

from toolpost import Context, Plugin

plugin = Plugin("ask", style="plain")


class Booking(BaseModel):
    name: str
    guests: Annotated[int, Field(ge=1, le=8, description="how many come")] = 2
    table: Literal["inside", "outside"]
    vegan: bool
    tip: float | None = None
    extras: list[Literal["music", "candles"]] = []


TITLED = {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]}


@plugin.tool
async def book(ctx: Context) -> dict[str, object]:
    """Book a table."""
    ctx.progress(1, 3, "asking")
    asked = await ctx.elicit("What shall I\\x1b[2J book?", Booking)
    return {"action": asked.action, "data": asked.data.model_dump() if asked else None, "can": ctx.client.can_elicit}


@plugin.tool
async def pay(ctx: Context) -> dict[str, str]:
    """Pay in a browser."""
    return {"action": (await ctx.elicit("Pay", url="https://pay.example/?id=1")).action}


@plugin.tool
async def both(ctx: Context) -> dict[str, object]:
    """Ask two things at once."""
    answers = {}

    async def ask(name: str, schema: dict[str, object]) -> None:
        answers[name] = (await ctx.elicit(name, schema)).action
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "color", {"type": "object", "properties": {"color": TITLED}, "required": ["color"]})
        tasks.start_soon(ask, "sure", {"type": "object", "properties": {}})
    return answers
'''

FORM = [
    ("name (text): ", ""),
    ("it is required", "Ada"),
    ("how many come\nguests (integer) [2]: ", "many"),
    ("must be an integer", "9"),
    ("must be at most 8", ""),
    ("table (inside, outside): ", "roof"),
    ("must be one of", "outside"),
    ("vegan (y, n): ", "maybe"),
    ("answer y or n", "Y"),
    ("tip (number) [none]: ", "1.5"),
    ("extras (some of music, candles) [none]: ", "music, candles"),
]
BOOKED = {"name": "Ada", "guests": 2, "table": "outside", "vegan": True, "tip": 1.5, "extras": ["music", "candles"]}

Converse = Callable[..., tuple[int, str]]


@pytest.fixture(params=["here", "url"])
def converse(
    request: pytest.FixtureRequest, tmp_path: Path, environment: dict[str, str], serve: Callable[..., Server]
) -> Converse:
    """Call a tool in this process and through a gateway: waits for each text, types each answer, returns the end."""
    (tmp_path / "ask.py").write_text(ASKING)
    where = ["--plugin", "./ask.py"]
    if request.param == "url":
        where = ["--url", serve("--plugin", "./ask.py").url]

    def converse(tool: str, *turns: tuple[str, str]) -> tuple[int, str]:
        with open_terminal([TOOLPOST, "call", tool, *where], cwd=tmp_path, env=environment, columns=80) as terminal:
            for shown, typed in turns:
                terminal.wait_for(shown)
                terminal.type(typed if typed in CONTROLS else f"{typed}\n")
            return terminal.wait_for_end(), terminal.text

    return converse


CTRL_C, CTRL_D = CONTROLS = ("\x03", "\x04")


def data_in(shown: str) -> object:
    return json.loads(shown[shown.index("\n{") :])


def test_a_form_is_filled_in_field_by_field(converse: Converse) -> None:
    code, shown = converse("ask__book", *FORM)

    assert code == 0
    assert "ask__book asks: What shall I\\u001b[2J book?\n" in shown, "no control characters of a tool"
    assert data_in(shown) == {"action": "accept", "data": BOOKED, "can": True}


def test_ctrl_d_declines_and_ctrl_c_cancels(converse: Converse) -> None:
    declined = converse("ask__book", ("name (text): ", "Ada"), ("guests", CTRL_D))
    cancelled = converse("ask__book", ("name (text): ", "Ada"), ("guests", CTRL_C))

    assert (declined[0], data_in(declined[1])) == (0, {"action": "decline", "data": None, "can": True})
    assert cancelled[0] == 130
    assert "code: CANCELLED" in cancelled[1]


def test_an_address_is_shown_in_full_and_opened_by_the_person(converse: Converse) -> None:
    opened = converse("ask__pay", ("https://pay.example/?id=1\n", ""))
    declined = converse("ask__pay", ("(Ctrl-D declines): ", CTRL_D))

    assert [data_in(shown) for _, shown in (opened, declined)] == [{"action": "accept"}, {"action": "decline"}]


def test_questions_at_once_are_asked_one_after_another(converse: Converse) -> None:
    code, shown = converse("ask__both", ("color (r = Red, g = Green): ", "Green"), ("accept? (y, n): ", "n"))

    assert code == 0
    assert data_in(shown) == {"color": "accept", "sure": "decline"}


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_server_asks_at_the_terminal_too(era: str, tmp_path: Path, environment: dict[str, str]) -> None:
    arguments = [str(SERVERS / "asking.py"), *(["handshake"] if era == "handshake" else [])]
    (tmp_path / "toolpost.toml").write_text(
        f"[servers.up]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(arguments)}\n"
    )
    with open_terminal([TOOLPOST, "call", "up__ask", "what=form"], cwd=tmp_path, env=environment) as terminal:
        terminal.wait_for("up__ask asks: Who are you?")
        terminal.wait_for("name (text): ")
        terminal.type("Ada\n")

        assert terminal.wait_for_end() == 0, terminal.text
        assert '"name": "Ada"' in terminal.text


def test_without_a_terminal_the_message_says_so(run: Run, serve: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text(ASKING)
    server = serve("--plugin", "./ask.py")
    for where in (("--plugin", "./ask.py"), ("--url", server.url)):
        ended = run("call", "ask__book", "-q", *where)

        assert ended.code == 3
        assert ended.err.splitlines()[:2] == [
            "error: the tool asks its user a question, and there is no terminal to answer it at",
            "hint: run it at a terminal, or use a client that declares the capability `elicitation`",
        ]
