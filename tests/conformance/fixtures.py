"""The tools, prompts and resources that the official conformance suite calls, as a server made with the SDK.

`python -m tests.conformance.fixtures PORT` serves them over HTTP in both eras. The suite's own descriptions say what each does
(`conformance list`, and the text that a failed check prints).
"""

import base64
import sys
from typing import Annotated, Any

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from pydantic import BaseModel, Field

IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
AUDIO = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQAAAAA="
MISSING_CAPABILITY = -32021

server = MCPServer("conformance-fixtures", version="1.0.0")


# Tools that answer


@server.tool()
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@server.tool()
def test_image_content() -> list[types.ImageContent]:
    """Return an image."""
    return [types.ImageContent(data=IMAGE, mime_type="image/png")]


@server.tool()
def test_audio_content() -> list[types.AudioContent]:
    """Return a sound."""
    return [types.AudioContent(data=AUDIO, mime_type="audio/wav")]


def embedded(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=text))


@server.tool()
def test_embedded_resource() -> list[types.EmbeddedResource]:
    """Return a resource inside the result."""
    return [embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]


@server.tool()
def test_multiple_content_types() -> list[types.TextContent | types.ImageContent | types.EmbeddedResource]:
    """Return a text, an image and a resource."""
    return [
        types.TextContent(text="Multiple content types test:"),
        types.ImageContent(data=IMAGE, mime_type="image/png"),
        embedded("test://mixed-content-resource", "application/json", '{"test": "data", "value": 123}'),
    ]


@server.tool()
def test_error_handling() -> str:
    """Fail."""
    raise RuntimeError("This tool intentionally returns an error for testing")


# Tools that tell something meanwhile


@server.tool()
async def test_tool_with_logging(ctx: Context[Any, Any]) -> str:
    """Log three messages, 50 ms apart."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(message)
        await anyio.sleep(0.05)
    return "logged"


@server.tool()
async def test_logging_tool(ctx: Context[Any, Any]) -> str:
    """Log one message."""
    await ctx.info("Logged on request")
    return "logged"


@server.tool()
async def test_tool_with_progress(ctx: Context[Any, Any]) -> str:
    """Report progress three times, 50 ms apart."""
    for step in (0, 50, 100):
        await ctx.report_progress(step, 100, f"Completed step {step} of 100")
        await anyio.sleep(0.05)
    return "done"


@server.tool()
async def test_reconnection(ctx: Context[Any, Any]) -> str:
    """Close the event stream in the middle of the call."""
    await ctx.close_sse_stream()
    await anyio.sleep(0.1)
    return "Reconnection test completed"


async def change_tools(ctx: Context[Any, Any]) -> str:
    """Add a tool, or take it away again."""

    def test_tool_added_meanwhile() -> str:
        """Be there for a while."""
        return "added"

    if any(tool.name == "test_tool_added_meanwhile" for tool in await server.list_tools()):
        server.remove_tool("test_tool_added_meanwhile")
    else:
        server.add_tool(test_tool_added_meanwhile)
    await ctx.notify_tools_changed()
    return "changed"


async def change_prompts(ctx: Context[Any, Any]) -> str:
    """Say that the prompts have changed."""
    await ctx.notify_prompts_changed()
    return "changed"


server.add_tool(change_tools, name="test_trigger_tool_change")
server.add_tool(change_prompts, name="test_trigger_prompt_change")


# Tools that ask the client


@server.tool()
async def test_sampling(prompt: str, ctx: Context[Any, Any]) -> str:
    """Have the client's model complete a prompt."""
    message = types.SamplingMessage(role="user", content=types.TextContent(text=prompt))
    answer = await ctx.session.create_message(messages=[message], max_tokens=100, related_request_id=ctx.request_id)
    return f"LLM response: {answer.content.text}"


async def elicited(ctx: Context[Any, Any], message: str, schema: type[BaseModel]) -> str:
    answer = await ctx.elicit(message, schema)
    content = answer.data.model_dump_json() if answer.action == "accept" else "{}"
    return f"action={answer.action}, content={content}"


class UserResponse(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


@server.tool()
async def test_elicitation(message: str, ctx: Context[Any, Any]) -> str:
    """Ask the user for something."""
    return f"User response: {await elicited(ctx, message, UserResponse)}"


class Defaults(BaseModel):
    name: str = Field(default="John Doe", description="User name")
    age: int = Field(default=30, description="User age")
    score: float = Field(default=95.5, description="User score")
    status: str = Field(
        default="active",
        description="User status",
        json_schema_extra={"enum": ["active", "inactive", "pending"]},
    )
    verified: bool = Field(default=True, description="Verification status")


@server.tool()
async def test_elicitation_sep1034_defaults(ctx: Context[Any, Any]) -> str:
    """Ask with a default for each kind of field."""
    return f"Elicitation completed: {await elicited(ctx, 'Please review your details', Defaults)}"


def titled(**titles: str) -> list[dict[str, str]]:
    return [{"const": const, "title": title} for const, title in titles.items()]


class Enums(BaseModel):
    untitledSingle: str = Field(json_schema_extra={"enum": ["option1", "option2", "option3"]})  # noqa: N815
    titledSingle: str = Field(  # noqa: N815
        json_schema_extra={"oneOf": titled(value1="First", value2="Second", value3="Third")}  # type: ignore[dict-item]
    )
    legacyEnum: str = Field(  # noqa: N815
        json_schema_extra={"enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]}
    )
    untitledMulti: list[str] = Field(  # noqa: N815
        json_schema_extra={"items": {"type": "string", "enum": ["option1", "option2", "option3"]}}
    )
    titledMulti: list[str] = Field(  # noqa: N815
        json_schema_extra={"items": {"anyOf": titled(value1="First", value2="Second", value3="Third")}}  # type: ignore[dict-item]
    )


@server.tool()
async def test_elicitation_sep1330_enums(ctx: Context[Any, Any]) -> str:
    """Ask with each form of an enum."""
    return f"Elicitation completed: {await elicited(ctx, 'Please choose', Enums)}"


@server.tool()
async def test_missing_capability(ctx: Context[Any, Any]) -> str:
    """Refuse a client that has not declared sampling."""
    capabilities = ctx.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        raise MCPError(MISSING_CAPABILITY, "This tool needs sampling", data={"requiredCapabilities": {"sampling": {}}})
    return "supported"


# Requests that end with a question (2026-07-28)


def form(message: str, **properties: str) -> types.ElicitRequest:
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(text: str, max_tokens: int = 100) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=text))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def accepted(ctx: Context[Any, Any], key: str, field: str) -> Any:
    """Return a field of an accepted form; None if there is no such answer, so that it is asked for again."""
    answer = (ctx.input_responses or {}).get(key)
    if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
        return None
    return (answer.content or {}).get(field)


@server.tool()
async def test_input_required_result_elicitation(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask for a name, then greet."""
    if not isinstance(name := accepted(ctx, "user_name", "name"), str):
        return types.InputRequiredResult(input_requests={"user_name": form("What is your name?", name="string")})
    return f"Hello, {name}!"


@server.tool()
async def test_input_required_result_sampling(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask a model for a capital."""
    answer = (ctx.input_responses or {}).get("capital_question")
    if not isinstance(answer, types.CreateMessageResult):
        return types.InputRequiredResult(input_requests={"capital_question": sample("What is the capital of France?")})
    return answer.content.text  # type: ignore[union-attr]


@server.tool()
async def test_input_required_result_list_roots(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask for the client's roots."""
    answer = (ctx.input_responses or {}).get("client_roots")
    if not isinstance(answer, types.ListRootsResult):
        return types.InputRequiredResult(input_requests={"client_roots": types.ListRootsRequest()})
    return ", ".join(str(root.uri) for root in answer.roots)


@server.tool()
async def test_input_required_result_request_state(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask for a confirmation, with a state that must come back."""
    if accepted(ctx, "confirm", "ok") is None or ctx.request_state != "waiting":
        return types.InputRequiredResult(
            input_requests={"confirm": form("Please confirm", ok="boolean")}, request_state="waiting"
        )
    return "state-ok"


@server.tool()
async def test_input_required_result_tampered_state(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask for a confirmation, with a state that nobody else can write."""
    return await test_input_required_result_request_state(ctx)


@server.tool()
async def test_input_required_result_multiple_inputs(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask three questions at once."""
    questions: types.InputRequests = {
        "user_name": form("What is your name?", name="string"),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": types.ListRootsRequest(),
    }
    if questions.keys() - (ctx.input_responses or {}).keys():
        return types.InputRequiredResult(input_requests=questions, request_state="three questions")
    return f"Hello, {accepted(ctx, 'user_name', 'name')}!"


@server.tool()
async def test_input_required_result_multi_round(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask twice, one after the other."""
    if accepted(ctx, "step2", "color") is not None and ctx.request_state == "round 2":
        return "both answered"
    if accepted(ctx, "step1", "name") is not None and ctx.request_state == "round 1":
        question = form("Step 2: What is your favorite color?", color="string")
        return types.InputRequiredResult(input_requests={"step2": question}, request_state="round 2")
    question = form("Step 1: What is your name?", name="string")
    return types.InputRequiredResult(input_requests={"step1": question}, request_state="round 1")


@server.tool()
async def test_input_required_result_capabilities(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask only what the client can answer."""
    capabilities = ctx.client_capabilities or types.ClientCapabilities()
    questions: types.InputRequests = {}
    if capabilities.elicitation is not None:
        questions["name"] = form("What is your name?", name="string")
    if capabilities.sampling is not None:
        questions["greeting"] = sample("Generate a greeting")
    if ctx.input_responses or not questions:
        return "done"
    return types.InputRequiredResult(input_requests=questions)


@server.tool()
async def test_streaming_elicitation(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Report progress, then ask."""
    await ctx.report_progress(1, 2, "about to ask")
    return await test_input_required_result_elicitation(ctx)


# Tools that are called as tasks


@server.tool()
def greet(name: str) -> str:
    """Greet at once."""
    return f"Hello, {name}!"


@server.tool()
async def slow_compute(seconds: float) -> str:
    """Take a while."""
    await anyio.sleep(seconds)
    return f"computed for {seconds:g} s"


@server.tool()
async def failing_job() -> str:
    """Fail after a second."""
    await anyio.sleep(1)
    raise RuntimeError("The job failed")


@server.tool()
async def protocol_error_job() -> str:
    """End with a protocol error after a second."""
    await anyio.sleep(1)
    raise MCPError(-32603, "The job broke")


@server.tool()
async def confirm_delete(filename: str, ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask before it does anything."""
    if accepted(ctx, "confirm", "confirm") is None:
        question = form(f"Delete {filename}?", confirm="boolean")
        return types.InputRequiredResult(input_requests={"confirm": question})
    return f"Deleted {filename}"


@server.tool()
async def multi_input(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask two questions at once."""
    questions: types.InputRequests = {
        "first": form("What is your first name?", name="string"),
        "second": form("What is your second name?", name="string"),
    }
    if questions.keys() - (ctx.input_responses or {}).keys():
        return types.InputRequiredResult(input_requests=questions)
    return f"{accepted(ctx, 'first', 'name')} {accepted(ctx, 'second', 'name')}"


@server.tool()
async def test_tool_with_task(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask for a name, then take a while."""
    if (name := accepted(ctx, "user_name", "name")) is None:
        return types.InputRequiredResult(input_requests={"user_name": form("What is your name?", name="string")})
    await anyio.sleep(1)
    return f"Hello, {name}!"


# Prompts and completions


def message(content: Any) -> UserMessage:
    return UserMessage(content=content)


@server.prompt()
def test_simple_prompt() -> list[UserMessage]:
    """A prompt without arguments."""
    return [message("This is a simple prompt for testing.")]


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
    """A prompt with two arguments."""
    return [message(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")]


@server.prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803
    """A prompt with a resource in it."""
    return [
        message(embedded(resourceUri, "text/plain", "Embedded resource content for testing.")),
        message("Please process the embedded resource above."),
    ]


@server.prompt()
def test_prompt_with_image() -> list[UserMessage]:
    """A prompt with an image in it."""
    image = types.ImageContent(data=IMAGE, mime_type="image/png")
    return [message(image), message("Please analyze the image above.")]


@server.prompt()
def test_input_required_result_prompt(ctx: Context[Any, Any]) -> list[UserMessage] | types.InputRequiredResult:
    """A prompt that asks for its context."""
    if (context := accepted(ctx, "user_context", "context")) is None:
        question = form("What context should the prompt use?", context="string")
        return types.InputRequiredResult(input_requests={"user_context": question})
    return [message(f"Use this context: {context}")]


@server.completion()  # type: ignore[no-untyped-call]
async def complete(_ref: Any, _argument: Any, _context: Any) -> types.Completion:
    return types.Completion(values=["paris", "park", "party"], total=3, has_more=False)


# Tools of optional scenarios


@server.tool()
def test_mirrored_argument(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Return an argument that HTTP requests have in a header too."""
    return region


@server.tool(name="json_schema_2020_12_tool")
def keywords() -> str:
    """Tool with JSON Schema 2020-12 features."""
    return "ok"


server._tool_manager._tools["json_schema_2020_12_tool"].parameters = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


# Resources


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image."""
    return base64.b64decode(IMAGE)


@server.resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    """A text that can be subscribed to."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:  # noqa: A002
    """A resource of each id."""
    return f'{{"id": "{id}", "templateTest": true, "data": "Data for ID: {id}"}}'


async def accept(_context: Any, _params: Any) -> types.EmptyResult:
    """Accept a subscription, its end, or a log level."""
    return types.EmptyResult()


if __name__ == "__main__":
    low = server._lowlevel_server
    low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, accept)
    low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, accept)
    low.add_request_handler("logging/setLevel", types.SetLevelRequestParams, accept)
    server.run("streamable-http", port=int(sys.argv[1]))
