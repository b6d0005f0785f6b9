"""Tools with large results, of every shape that a function can give."""

from pydantic import BaseModel

from toolpost import Image, Plugin, Result, Text

plugin = Plugin("bulk", version="1.0.0")


class Row(BaseModel):
    """A row."""

    id: int
    name: str


@plugin.tool
def rows(count: int) -> list[Row]:
    """Return rows."""
    return [Row(id=number, name=f"row é {number}") for number in range(count)]


@plugin.tool(style="plain")
def text(count: int) -> str:
    """Return lines of text."""
    return "".join(f'line {number} "ü😀"\n' for number in range(count))


@plugin.tool(
    style="plain", output_schema={"type": "object", "properties": {"key": {"type": "string", "pattern": "^k+$"}}}
)
def patterned(count: int) -> dict[str, str]:
    """Return a text that cannot be cut without breaking the schema."""
    return {"key": "k" * count}


@plugin.tool(output_schema={"type": "array", "items": {"type": "integer"}, "minItems": 400})
def exact(count: int) -> list[int]:
    """Return many numbers, of which none may be left out."""
    return list(range(10**9, 10**9 + count))


@plugin.tool
def picture(count: int) -> Image:
    """Return an image."""
    return Image(bytes(range(256)) * count, mime_type="image/png")


@plugin.tool(output_schema={"type": "integer"})
def lie(count: int) -> Result:
    """Break the schema, with long content in place of data."""
    return Result(content=[Text("row é\n" * count)])


@plugin.tool
def fail(count: int) -> Result:
    """Fail, with long content of its own."""
    return Result(content=[Text("no " * count)], is_error=True)
