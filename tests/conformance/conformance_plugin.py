"""What the official conformance suite calls, as a plugin that uses only the public API."""

import base64
from typing import Annotated, Any, Literal

import anyio
from pydantic import BaseModel, Field

from toolpost import (
    Accepted,
    Audio,
    ClientCannotAnswer,
    Content,
    Context,
    Declined,
    File,
    Image,
    Message,
    Plugin,
    ProtocolError,
    Text,
    ToolFailed,
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQAAAAA=")

plugin = Plugin("conformance", version="1.0.0")


# Tools that answer


@plugin.tool
def test_simple_text() -> Text:
    """Return a text."""
    return Text("This is a simple text response for testing.")


@plugin.tool
def test_image_content() -> Image:
    """Return an image."""
    return Image(PNG)


@plugin.tool
def test_audio_content() -> Audio:
    """Return a sound."""
    return Audio(WAV)


@plugin.tool
def test_embedded_resource() -> File:
    """Return a resource inside the result."""
    return File("This is an embedded resource content.", uri="test://embedded-resource")


@plugin.tool
def test_multiple_content_types() -> list[Content | str]:
    """Return a text, an image and a resource."""
    resource = File('{"test": "data", "value": 123}', uri="test://mixed-content-resource", mime_type="application/json")
    return ["Multiple content types test:", Image(PNG), resource]


@plugin.tool
def test_error_handling() -> str:
    """Fail."""
    raise ToolFailed("This tool intentionally returns an error for testing")


# Tools that tell something meanwhile


@plugin.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three messages, 50 ms apart."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log("info", message)
        await anyio.sleep(0.05)
    return "logged"


@plugin.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log one message."""
    ctx.log("info", "Logged on request")
    return "logged"


@plugin.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times, 50 ms apart."""
    for step in (0, 50, 100):
        ctx.progress(step, 100, f"Completed step {step} of 100")
        await anyio.sleep(0.05)
    return "done"


@plugin.tool
async def test_reconnection() -> str:
    """Take a moment."""
    await anyio.sleep(0.1)
    return "Reconnection test completed"


@plugin.tool
async def test_trigger_tool_change() -> str:
    """Add a tool for a while."""

    @plugin.tool
    async def test_tool_added_meanwhile() -> str:
        """Be there for a while."""
        return "added"

    await anyio.sleep(0.2)
    plugin.remove(test_tool_added_meanwhile)
    return "changed"


@plugin.tool
async def test_trigger_prompt_change() -> str:
    """Add a prompt for a while."""

    @plugin.prompt
    def test_prompt_added_meanwhile() -> str:
        """Be there for a while."""
        return "added"

    await anyio.sleep(0.2)
    plugin.remove(test_prompt_added_meanwhile)
    return "changed"


# Tools that ask the client


@plugin.tool
async def test_sampling(prompt: str, ctx: Context) -> Text:
    """Have the client's model complete a prompt."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return Text(f"LLM response: {answer.text}")


def tell(answer: Accepted[Any] | Declined) -> str:
    content = answer.data.model_dump_json() if answer else "{}"
    return f"action={answer.action}, content={content}"


class UserResponse(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


@plugin.tool
async def test_elicitation(message: str, ctx: Context) -> Text:
    """Ask the user for something."""
    return Text(f"User response: {tell(await ctx.elicit(message, UserResponse))}")


class Defaults(BaseModel):
    name: str = Field("John Doe", description="User name")
    age: int = Field(30, description="User age")
    score: float = Field(95.5, description="User score")
    status: Literal["active", "inactive", "pending"] = Field("active", description="User status")
    verified: bool = Field(True, description="Verification status")


@plugin.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> Text:
    """Ask with a default for each kind of field."""
    return Text(f"Elicitation completed: {tell(await ctx.elicit('Please review your details', Defaults))}")


def titled(**titles: str) -> list[dict[str, str]]:
    return [{"const": const, "title": title} for const, title in titles.items()]


Option = Literal["option1", "option2", "option3"]
TITLES = titled(value1="First", value2="Second", value3="Third")


class Enums(BaseModel):
    untitledSingle: Option  # noqa: N815 (as the suite names them)
    titledSingle: Annotated[str, Field(json_schema_extra={"oneOf": TITLES})]  # noqa: N815
    legacyEnum: Annotated[  # noqa: N815
        Literal["opt1", "opt2", "opt3"], Field(json_schema_extra={"enumNames": ["One", "Two", "Three"]})
    ]
    untitledMulti: list[Option]  # noqa: N815
    titledMulti: Annotated[  # noqa: N815
        list[str],
        Field(json_schema_extra={"items": {"anyOf": TITLES}}),
    ]


@plugin.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> Text:
    """Ask with each form of an enum."""
    return Text(f"Elicitation completed: {tell(await ctx.elicit('Please choose', Enums))}")


@plugin.tool
async def test_missing_capability(ctx: Context) -> str:
    """Refuse a client that has not declared sampling."""
    if not ctx.client.can_sample:
        raise ClientCannotAnswer("This tool needs sampling.", required={"sampling": {}})
    return "supported"


# Requests that take several rounds in the stateless era


class Name(BaseModel):
    name: str


class Confirmation(BaseModel):
    ok: bool


@plugin.tool
async def test_input_required_result_elicitation(ctx: Context) -> Text:
    """Ask for a name, then greet."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return Text(f"Hello, {answer.data.name if answer else 'stranger'}!")


@plugin.tool
async def test_input_required_result_sampling(ctx: Context) -> Text:
    """Ask a model for a capital."""
    return Text((await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")).text)


@plugin.tool
async def test_input_required_result_list_roots(ctx: Context) -> Text:
    """Ask for the client's roots."""
    return Text(", ".join(root.uri for root in await ctx.roots(key="client_roots")))


async def confirm(ctx: Context) -> Text:
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return Text("state-ok" if answer else "not confirmed")


@plugin.tool
async def test_input_required_result_request_state(ctx: Context) -> Text:
    """Ask for a confirmation."""
    return await confirm(ctx)


@plugin.tool
async def test_input_required_result_tampered_state(ctx: Context) -> Text:
    """Ask for a confirmation, with a state that nobody else can write."""
    return await confirm(ctx)


@plugin.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> Text:
    """Ask three questions at once."""
    names: list[str] = []

    async def ask() -> None:
        answer = await ctx.elicit("What is your name?", Name, key="user_name")
        names.append(answer.data.name if answer else "stranger")

    async def greet() -> None:
        await ctx.sample("Generate a greeting", max_tokens=50, key="greeting")

    async def look() -> None:
        await ctx.roots(key="client_roots")

    async with anyio.create_task_group() as tasks:
        for question in (ask, greet, look):
            tasks.start_soon(question)
    return Text(f"Hello, {names[0]}!")


class Color(BaseModel):
    color: str


@plugin.tool
async def test_input_required_result_multi_round(ctx: Context) -> Text:
    """Ask twice, one after the other."""
    await ctx.elicit("Step 1: What is your name?", Name, key="step1")
    await ctx.elicit("Step 2: What is your favorite color?", Color, key="step2")
    return Text("both answered")


@plugin.tool
async def test_input_required_result_capabilities(ctx: Context) -> Text:
    """Ask only what the client can answer."""
    if ctx.client.can_elicit:
        await ctx.elicit("What is your name?", Name)
    if ctx.client.can_sample:
        await ctx.sample("Generate a greeting", max_tokens=100)
    return Text("done")


@plugin.tool
async def test_streaming_elicitation(ctx: Context) -> Text:
    """Report progress, then ask."""
    ctx.progress(1, 2, "about to ask")
    await ctx.elicit("What is your name?", Name, key="user_name")
    return Text("done")


@plugin.tool
async def test_protocol_error() -> str:
    """End with a protocol error."""
    raise ProtocolError(-32000, "This tool answers with a protocol error")


# Prompts and completions


@plugin.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@plugin.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@test_prompt_with_arguments.complete("arg1")
def complete_arg1(typed: str) -> list[str]:
    return [word for word in ("paris", "park", "party") if word.startswith(typed)] or ["testing"]


@plugin.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message]:  # noqa: N803
    """A prompt with a resource in it."""
    return [
        Message(File("Embedded resource content for testing.", uri=resourceUri)),
        Message("Please process the embedded resource above."),
    ]


@plugin.prompt
def test_prompt_with_image() -> list[Image | str]:
    """A prompt with an image in it."""
    return [Image(PNG), "Please analyze the image above."]


class PromptContext(BaseModel):
    context: str


@plugin.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks for its context."""
    answer = await ctx.elicit("What context should the prompt use?", PromptContext, key="user_context")
    return f"Use this context: {answer.data.context if answer else 'none'}"


# Resources


@plugin.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@plugin.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image."""
    return PNG


@plugin.resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    """A text that can be subscribed to."""
    return "Watched resource content"


@plugin.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> dict[str, Any]:  # noqa: A002 (as the suite names it)
    """A resource of each id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# Tools that are called as tasks


@plugin.tool
async def greet(name: str) -> Text:
    """Greet at once."""
    return Text(f"Hello, {name}!")


@plugin.tool
async def slow_compute(seconds: float, label: str = "") -> Text:
    """Take a while."""
    await anyio.sleep(seconds)
    return Text(f"{label}: computed for {seconds:g} s")


@plugin.tool
async def failing_job() -> Text:
    """Fail after a second."""
    await anyio.sleep(1)
    raise RuntimeError("The job failed")


@plugin.tool
async def protocol_error_job() -> Text:
    """End with a protocol error after a second."""
    await anyio.sleep(1)
    raise ProtocolError(-32603, "The job broke")


class Deletion(BaseModel):
    confirm: bool


@plugin.tool
async def confirm_delete(filename: str, ctx: Context) -> Text:
    """Ask before it does anything."""
    answer = await ctx.elicit(f"Delete {filename}?", Deletion, key="confirm")
    return Text(f"Deleted {filename}" if answer.data and answer.data.confirm else "kept")


@plugin.tool
async def multi_input(ctx: Context) -> Text:
    """Ask two questions at once."""
    names: dict[str, str] = {}

    async def ask(key: str) -> None:
        answer = await ctx.elicit(f"What is your {key} name?", Name, key=key)
        names[key] = answer.data.name if answer.data else "?"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "first")
        tasks.start_soon(ask, "second")
    return Text(f"{names['first']} {names['second']}")
