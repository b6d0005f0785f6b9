"""Content blocks, and what a function's return value becomes."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolpost import Audio, Content, File, Icon, Image, Link, Message, Plugin, Result, Text, tool
from toolpost.authoring.content import as_icon
from toolpost.contracts.errors import ContractRefused, ToolFailed
from toolpost.providers.functions import FunctionProvider, to_raw_result


def test_files_say_their_type_by_their_name(tmp_path: Path) -> None:
    for name, data in (("a.jpg", b"jpg"), ("a.mp3", b"mp3"), ("a.csv", b"a,b"), ("a.bin", b"\xff\x00")):
        (tmp_path / name).write_bytes(data)

    assert Image(path=tmp_path / "a.jpg").as_block() == {"type": "image", "data": "anBn", "mimeType": "image/jpeg"}
    assert Audio(path=tmp_path / "a.mp3").as_block()["mimeType"] == "audio/mpeg"
    table = File(path=tmp_path / "a.csv").as_block()["resource"]
    assert table == {"uri": (tmp_path / "a.csv").as_uri(), "mimeType": "text/csv", "text": "a,b"}
    raw = File(path=tmp_path / "a.bin").as_block()["resource"]
    assert (raw["mimeType"], raw["blob"]) == ("application/octet-stream", "/wA=")


def test_text_that_is_not_utf_8_is_sent_as_bytes() -> None:
    contents = File(b"\xff", uri="x://y", mime_type="text/plain").as_contents()

    assert contents == {"uri": "x://y", "mimeType": "text/plain", "blob": "/w=="}


@pytest.mark.parametrize("make", [Image, lambda: Image(b"", path="x"), lambda: File(b"x")])
def test_content_needs_data_or_a_path(make: Any) -> None:
    with pytest.raises(TypeError):
        make()


def test_links_and_icons_leave_out_what_they_do_not_have() -> None:
    link = Link("notes://a/b", icons=["https://example.com/i.png"], annotations={"priority": 1}, meta={"k": 1})

    assert link.as_block() == {
        "type": "resource_link",
        "uri": "notes://a/b",
        "name": "b",
        "icons": [{"src": "https://example.com/i.png"}],
        "annotations": {"priority": 1},
        "_meta": {"k": 1},
    }
    assert as_icon(Icon("i", mime_type="image/svg+xml", sizes=["any"], theme="dark")) == {
        "src": "i",
        "mimeType": "image/svg+xml",
        "sizes": ["any"],
        "theme": "dark",
    }


def test_content_in_a_list_is_content_and_data_in_a_list_is_data() -> None:
    mixed = to_raw_result(["a", Text("b"), {"type": "text", "text": "c"}, 3])
    data = to_raw_result(["a", 3])

    assert mixed.value is msgspec.UNSET
    assert [block["text"] for block in mixed.content] == ["a", "b", "c", "3"]
    assert (data.value, data.content, data.is_custom) == (["a", 3], (), False)


def test_content_inside_of_data_is_an_error() -> None:
    with pytest.raises(ToolFailed, match="not JSON"):
        to_raw_result({"picture": Image(b"")})


def test_hints_of_content_list_no_output_schema() -> None:
    @tool
    def one() -> Image:
        """An image."""
        return Image(b"")

    @tool
    def some() -> list[Content | str] | None:
        """Content."""
        return None

    @tool
    def data() -> list[str]:
        """Data."""
        return []

    assert [made.terms.output_schema is None for made in (one, some, data)] == [True, True, False]


def test_a_message_has_text_or_content() -> None:
    assert Message("hi").as_object() == {"role": "user", "content": {"type": "text", "text": "hi"}}
    assert Message(Image(b"x"), role="assistant").as_object()["content"]["type"] == "image"


def test_parameters_of_a_resource_are_those_of_its_uri() -> None:
    plugin = Plugin("p")
    with pytest.raises(TypeError, match="no parameter `title`"):
        plugin.resource("notes://{title}")(lambda: "")
    with pytest.raises(TypeError, match="no scheme"):
        plugin.resource("notes")(lambda: "")

    def needs_more(title: str, other: str) -> str:
        return title + other

    with pytest.raises(TypeError, match="`other`, which has no default"):
        plugin.resource("notes://{title}")(needs_more)
    assert list(plugin.toolpost_resources()) == []


def test_a_tool_that_cannot_be_served_is_not_added() -> None:
    plugin = Plugin("p")
    provider = FunctionProvider("p", plugin.toolpost_tools())
    stop = plugin.watch(lambda _change, _uri: provider.replace(plugin.toolpost_tools()))

    @plugin.tool
    def good() -> Result:
        """Be served."""
        return Result(data=1)

    before = provider.tools["p__good"]  # type: ignore[index]
    with pytest.raises(ContractRefused):
        plugin.tool(input_schema={"type": "string"}, description="Bad")(lambda _arguments: 1)
    assert list(provider.tools) == ["p__good"]
    assert provider.tools["p__good"] is before  # type: ignore[index]
    plugin.remove(good)
    assert list(provider.tools) == []
    stop()
    plugin.add(good)
    assert list(provider.tools) == []
