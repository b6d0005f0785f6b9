"""A plugin that offers everything that MCP has: content, resources, prompts, completions, and tools that ask the client."""

import base64
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import anyio
import anyio.from_thread
from pydantic import BaseModel, Field

from toolpost import (
    Audio,
    ClientCannotAnswer,
    Content,
    Context,
    File,
    Icon,
    Image,
    Link,
    Message,
    NotFound,
    Plugin,
    ProtocolError,
    Result,
    Text,
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Booking(BaseModel):
    """What a form asks for."""

    name: str
    guests: Annotated[int, Field(ge=1, le=8)] = 2
    table: Literal["inside", "outside"] = "inside"
    note: str | None = None


@dataclass
class Note:
    title: str
    text: str


plugin = Plugin("offers", version="1.0.0")
notes = {"today": "buy bread"}
CHANGED: dict[str, Any] = {}
"""What was added at run time, until it is removed."""


@plugin.tool(
    icons=["https://example.com/image.png", Icon("data:,", sizes=["48x48"])], meta={"dev.example/kind": "image"}
)
def image() -> Image:
    """An image, and nothing else."""
    return Image(PNG, annotations={"audience": ["user"]})


@plugin.tool
def mixed() -> list[Content | str]:
    """Every kind of content."""
    return [
        "before",
        Image(PNG),
        Audio(b"RIFF"),
        File("a,b", uri="offers://table.csv", mime_type="text/csv"),
        File(b"\x00\x01", uri="offers://raw"),
        Link("offers://today", title="Today"),
        Text("after", meta={"dev.example/last": True}),
    ]


@plugin.tool(output_schema={"type": "object", "properties": {"width": {"type": "integer"}}, "required": ["width"]})
def measured(width: int | str = 1) -> Result:
    """Data that its schema describes, and an image, and `_meta`."""
    return Result(data={"width": width}, content=[Image(PNG)], meta={"dev.example/by": "ruler"})


@plugin.tool(style="plain", output_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
def plain_measured() -> Result:
    """The same in the plain style."""
    return Result(data={"n": 1}, meta={"dev.example/by": "ruler"})


@plugin.tool
def broken(style: Literal["text", "data"] = "text") -> Result:
    """Fail, with content of its own."""
    if style == "text":
        return Result(is_error=True, content=["It broke here:", Image(PNG)])
    return Result(is_error=True, data={"line": 3}, content=["It broke."])


@plugin.tool(style="plain")
def plain_broken() -> Result:
    """Fail, in the plain style."""
    return Result(is_error=True, content=["It broke."])


@plugin.tool(output_schema={"type": "object"})
def forgetful() -> Result:
    """Promise data, and return none."""
    return Result(content=["no data"])


@plugin.tool
def missing_file() -> Image:
    """Return an image that is not there."""
    return Image(path="/nowhere/at-all.png")


@plugin.tool
def refuse() -> str:
    """Answer with a protocol error."""
    raise ProtocolError(-32050, "Not today", data={"until": "tomorrow"})


@plugin.tool(timeout_s=1)
async def book(ctx: Context) -> dict[str, Any]:
    """Book a table: ask for the details, then whether they are right."""
    asked = await ctx.elicit("Your booking?", Booking, key="booking")
    if not asked:
        return {"action": asked.action}
    sure = await ctx.elicit(f"A table for {asked.data.guests}?", bool)
    return {"action": asked.action, "booking": asked.data.model_dump(), "sure": sure.data}


@plugin.tool
def book_in_thread(ctx: Context) -> str:
    """Ask from a synchronous tool."""
    asked = anyio.from_thread.run(ctx.elicit, "Your booking?", Booking)
    ctx.log("info", "asked in a thread")
    return asked.data.name if asked else asked.action


@plugin.tool
async def by_schema(ctx: Context) -> Any:
    """Ask with a schema, at once with a question for the model."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    answers: dict[str, Any] = {}

    async def elicit() -> None:
        answers["name"] = (await ctx.elicit("Your name?", schema)).data

    async def sample() -> None:
        answers["poem"] = (await ctx.sample([Message("A poem"), Image(PNG)], system="Be brief", max_tokens=9)).text

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(elicit)
        tasks.start_soon(sample)
    return answers


@plugin.tool
async def pay(ctx: Context) -> str:
    """Send the user to a page."""
    sent = await ctx.elicit("Pay there", url="https://pay.example.com/7")
    ctx.url_completed(sent)
    return sent.action


@plugin.tool
async def folders(ctx: Context) -> list[str]:
    """List the client's roots."""
    return [root.uri for root in await ctx.roots()]


@plugin.tool
async def who(ctx: Context) -> dict[str, Any]:
    """Tell what is known of the client."""
    client = ctx.client
    can = [client.can_elicit, client.can_open_urls, client.can_sample, client.has_roots]
    return {"name": client.name, "revision": client.revision, "can": can}


@plugin.tool
async def careful(ctx: Context) -> str:
    """Ask, and do without an answer where the client cannot be asked."""
    try:
        return (await ctx.elicit("Your booking?", Booking)).action
    except ClientCannotAnswer:
        return "not asked"


@plugin.tool
async def logs(ctx: Context) -> str:
    """Log at three levels."""
    for level in ("debug", "info", "error"):
        ctx.log(level, {"at": level}, logger="kitchen")
    return "logged"


@plugin.resource("offers://logo", mime_type="image/png", size=len(PNG), icons=["https://example.com/logo.png"])
def logo() -> bytes:
    """The logo."""
    return PNG


@plugin.resource("offers://notes/{title}", title="A note", annotations={"priority": 1})
async def note(title: str) -> str:
    """A note by its title."""
    if title not in notes:
        raise NotFound(f"There is no note `{title}`.", hint="offers://notes lists them")
    return notes[title]


@note.complete("title")
async def complete_title(typed: str) -> list[str]:
    return [title for title in notes if title.startswith(typed)]


@plugin.resource("offers://notes")
def all_notes() -> list[Note]:
    """All notes, as JSON."""
    return [Note(title, text) for title, text in notes.items()]


@plugin.resource("offers://search{?text,most}")
def search(text: str = "", most: int = 10) -> list[str]:
    """Notes with a text."""
    return [title for title, written in notes.items() if text in written][:most]


@plugin.resource("offers://slow", timeout_s=0.2)
async def slow() -> str:
    """A resource that takes too long."""
    await anyio.sleep(30)
    return "late"


@plugin.resource("offers://private")
async def private(ctx: Context) -> str:
    """A resource that asks before it is shown."""
    return "shown" if await ctx.elicit("Show it?", bool) else "hidden"


@plugin.resource("offers://broken")
def broken_resource() -> str:
    """A resource that fails."""
    raise RuntimeError("the shelf fell")


@plugin.tool
async def write(title: str, text: str) -> str:
    """Write a note."""
    notes[title] = text
    plugin.resource_updated(f"offers://notes/{title}")
    return "written"


@plugin.prompt(title="Summarize", icons=["https://example.com/pen.png"])
def summarize(
    title: Annotated[str, "which note"], tone: Literal["dry", "warm"] = "dry", words: int = 50
) -> list[Message | str]:
    """Summarize a note."""
    about = Message(File(notes.get(title, ""), uri=f"offers://notes/{title}"))
    return [about, f"Summarize it in {words + 0} {tone} words.", Message("Gladly:", role="assistant")]


@summarize.complete("title")
def complete_title_with_tone(typed: str, others: dict[str, str]) -> list[str]:
    return [f"{title} {others.get('tone', '')}".strip() for title in notes if title.startswith(typed)]


@plugin.prompt
async def personal(ctx: Context) -> str:
    """A prompt that asks for a name."""
    answer = await ctx.elicit("Who are you?", str)
    return f"I am {answer.data}."


@plugin.tool
async def change(what: Literal["tools", "prompts", "resources"], add: bool = True) -> str:
    """Add something, or remove it again."""
    if not add:
        plugin.remove(CHANGED.pop(what))
    elif what == "tools":

        @plugin.tool
        async def added() -> str:
            """Be there for a while."""
            return "added"

        CHANGED[what] = added
    elif what == "prompts":

        @plugin.prompt
        def added_prompt() -> str:
            """Be there for a while."""
            return "added"

        CHANGED[what] = added_prompt
    else:

        @plugin.resource("offers://added")
        def added_resource() -> str:
            """Be there for a while."""
            return "added"

        CHANGED[what] = added_resource
    return "changed"
