"""`results__read`, and the resources that truncated results link to."""

import base64
from typing import Any, Final

from toolpost import Context, ErrorCode, File, NotFound, Plugin, __version__
from toolpost.base import JsonObject
from toolpost.parts.results.kept import SCHEME, uri_of
from toolpost.parts.results.limiter import PLUGIN
from toolpost.parts.results.reader import PAGE_BYTES, PAGE_LIMIT_BYTES, ReadRequest, ResultReader
from toolpost.parts.results.records import ResultId

_COUNT: Final = {"type": "integer", "minimum": 0}


def _object(required: list[str], **properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def results_plugin(reader: ResultReader) -> Plugin:
    """Make the plugin that reads the results of a store."""
    plugin = Plugin(
        PLUGIN, version=__version__, description="Read the rest of results that were truncated.", style="plain"
    )
    _add_tool(plugin, reader)
    _add_resources(plugin, reader)
    return plugin


def _add_tool(plugin: Plugin, reader: ResultReader) -> None:
    @plugin.tool(
        title="Read a truncated result",
        description="Read a result that was truncated: page by page, the lines that match a pattern, or one value of it.",
        input_schema=_object(
            ["id"],
            id={"type": "string", "maxLength": 100, "description": "The id in the truncated result"},
            select={
                "type": "string",
                "maxLength": 1000,
                "description": "JSON pointer to read only that, such as `/content/0/text` or `/data/items/*/name`",
            },
            grep={
                "type": "string",
                "minLength": 1,
                "maxLength": 1000,
                "description": "Only lines that match this regular expression (RE2; `(?i)` ignores case)",
            },
            offset=_COUNT | {"description": "Where to begin: `next_offset`, or the offset of a match"},
            limit={
                "type": "integer",
                "minimum": 100,
                "maximum": PAGE_LIMIT_BYTES,
                "default": PAGE_BYTES,
                "description": "Bytes to read",
            },
        ),
        output_schema=_object(
            ["size", "next_offset"],
            text={"type": "string"},
            type={"enum": ["text", "json"]},
            matches={"type": "array", "items": _object(["offset", "text"], offset=_COUNT, text={"type": "string"})},
            size=_COUNT,
            next_offset={"type": ["integer", "null"], "description": "null at the end"},
        ),
        annotations={"readOnlyHint": True, "openWorldHint": False},
        errors=[ErrorCode.NOT_FOUND, ErrorCode.INVALID_PARAMS],
    )
    async def read(arguments: JsonObject, context: Context) -> JsonObject:
        request = ReadRequest(
            id=ResultId(arguments["id"]),
            select=arguments.get("select"),
            grep=arguments.get("grep", ""),
            offset=arguments.get("offset", 0),
            limit=arguments.get("limit", PAGE_BYTES),
        )
        read = reader.search if request.grep else reader.read_page
        return await read(context.caller.id, request)


def _add_resources(plugin: Plugin, reader: ResultReader) -> None:
    @plugin.resource(
        f"{SCHEME}://{{name}}", name="truncated-result", title="A truncated result, whole", mime_type="application/json"
    )
    async def whole(name: str, context: Context) -> File:
        result = ResultId(name)
        data = await reader.read_whole(context.caller.id, result)
        return File(data, uri=uri_of(result), mime_type="application/json")

    @plugin.resource(f"{SCHEME}://{{name}}/content/{{number}}", name="block-of-a-result", title="A block of a result")
    async def block(name: str, number: str, context: Context) -> File:
        result = ResultId(name)
        if not number.isascii() or not number.isdecimal():
            raise NotFound("There is no such block.")
        found = await reader.read_block(context.caller.id, result, int(number))
        inner = found.get("resource")
        contents = inner if isinstance(inner, dict) else found
        mime_type = contents.get("mimeType")
        encoded = contents.get("data") or contents.get("blob")
        value: str | bytes = str(contents.get("text", ""))
        if isinstance(encoded, str):
            try:
                value = base64.b64decode(encoded)
            except ValueError:
                value = encoded
        kind = mime_type if isinstance(mime_type, str) else None
        return File(value, uri=uri_of(result, int(number)), mime_type=kind or "application/octet-stream")
