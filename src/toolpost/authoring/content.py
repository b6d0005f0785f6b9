"""Content that a tool, a prompt or a resource may give a client besides data: text, images, audio, files and links.

Each class makes one content block of MCP. They are no data classes on purpose: `msgspec` would encode those as data, and a
tool that returns one by mistake inside of its data must fail instead.
"""

import base64
import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from toolpost.base.ids import JsonObject

DEFAULT_MIME_TYPE: Final = "application/octet-stream"


class Content:
    """A content block; `annotations` are MCP's (`audience`, `priority`, `lastModified`), `meta` is its `_meta`."""

    __slots__ = ("annotations", "meta")

    def __init__(self, *, annotations: Mapping[str, Any] | None = None, meta: Mapping[str, Any] | None = None) -> None:
        self.annotations = annotations
        self.meta = meta

    def as_block(self) -> JsonObject:
        """Return the block as MCP writes it; reads the file of one that was made from a path."""
        block = self._make_block()
        if self.annotations:
            block["annotations"] = dict(self.annotations)
        if self.meta:
            block["_meta"] = dict(self.meta)
        return block

    def _make_block(self) -> JsonObject:
        raise NotImplementedError


class Text(Content):
    """Text that a client gets as it is, without quotes and without an envelope."""

    __slots__ = ("text",)

    def __init__(self, text: str, **options: Any) -> None:
        super().__init__(**options)
        self.text = text

    def _make_block(self) -> JsonObject:
        return {"type": "text", "text": self.text}


class _Media(Content):
    """Bytes of one kind, from memory or from a file."""

    __slots__ = ("data", "mime_type", "path")

    kind = ""
    default_mime_type = DEFAULT_MIME_TYPE

    def __init__(
        self,
        data: bytes | str | None = None,
        *,
        path: Path | str | None = None,
        mime_type: str | None = None,
        **options: Any,
    ) -> None:
        """Take bytes, or base64 as text, or the path of a file, whose name says the type unless `mime_type` does."""
        super().__init__(**options)
        if (data is None) is (path is None):
            raise TypeError(f"{type(self).__name__} takes either data or a path")
        self.data = data
        self.path = None if path is None else Path(path)
        self.mime_type = mime_type or _guess_type(self.path, self.default_mime_type)

    def _make_block(self) -> JsonObject:
        encoded = self.data if isinstance(self.data, str) else base64.b64encode(self.read()).decode()
        return {"type": self.kind, "data": encoded, "mimeType": self.mime_type}

    def read(self) -> bytes:
        """Return the bytes."""
        if self.path is not None:
            return self.path.read_bytes()
        return base64.b64decode(self.data) if isinstance(self.data, str) else bytes(self.data or b"")


class Image(_Media):
    """An image, `Image(png_bytes)` or `Image(path="chart.png")`; PNG unless something says otherwise."""

    __slots__ = ()
    kind = "image"
    default_mime_type = "image/png"


class Audio(_Media):
    """Sound, `Audio(wav_bytes)` or `Audio(path="call.mp3")`; WAV unless something says otherwise."""

    __slots__ = ()
    kind = "audio"
    default_mime_type = "audio/wav"


class File(_Media):
    """A file inside the result, as an embedded resource; text if its type is a text's, else bytes."""

    __slots__ = ("uri",)

    def __init__(
        self,
        data: bytes | str | None = None,
        *,
        path: Path | str | None = None,
        uri: str | None = None,
        mime_type: str | None = None,
        **options: Any,
    ) -> None:
        """Take bytes or text, or the path of a file; `uri` is how it is called, by default the path's `file://`."""
        super().__init__(data, path=path, mime_type=mime_type, **options)
        if uri is None and self.path is None:
            raise TypeError("File takes a uri where there is no path")
        self.uri = uri if uri is not None else self.path.absolute().as_uri()  # type: ignore[union-attr]
        if mime_type is None and path is None and isinstance(data, str):
            self.mime_type = "text/plain"

    def _make_block(self) -> JsonObject:
        return {"type": "resource", "resource": self.as_contents()}

    def as_contents(self) -> JsonObject:
        """Return it as `resources/read` has it."""
        return make_contents(self.uri, self._value(), self.mime_type)

    def _value(self) -> str | bytes:
        if isinstance(self.data, str):
            return self.data
        raw = self.read()
        if not is_text_type(self.mime_type):
            return raw
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw


class Link(Content):
    """A link to a resource, which a client may read, with `resources/read` or directly."""

    __slots__ = ("description", "icons", "mime_type", "name", "size", "title", "uri")

    def __init__(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        icons: "Sequence[Icon | str]" = (),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.uri = uri
        self.name = name or uri.rstrip("/").rpartition("/")[2] or uri
        self.title = title
        self.description = description
        self.mime_type = mime_type
        self.size = size
        self.icons = icons

    def _make_block(self) -> JsonObject:
        found = {
            "type": "resource_link",
            "uri": self.uri,
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "mimeType": self.mime_type,
            "size": self.size,
            "icons": [as_icon(icon) for icon in self.icons] or None,
        }
        return {key: value for key, value in found.items() if value is not None}


class Icon:
    """An icon of a tool, a resource or a prompt: the address of an image, or a `data:` URI."""

    __slots__ = ("mime_type", "sizes", "src", "theme")

    def __init__(
        self, src: str, *, mime_type: str | None = None, sizes: Sequence[str] = (), theme: str | None = None
    ) -> None:
        """`sizes` are like `48x48` or `any`; `theme` is `light` or `dark`."""
        self.src = src
        self.mime_type = mime_type
        self.sizes = tuple(sizes)
        self.theme = theme


def as_icon(icon: Icon | str) -> JsonObject:
    """Return an icon as MCP writes it; a text is its address."""
    if isinstance(icon, str):
        icon = Icon(icon)
    found = {
        "src": icon.src,
        "mimeType": icon.mime_type,
        "sizes": list(icon.sizes) or None,
        "theme": icon.theme,
    }
    return {key: value for key, value in found.items() if value is not None}


def make_contents(uri: str, value: str | bytes, mime_type: str | None) -> JsonObject:
    """Return the contents of a resource: `text` for text, `blob` for bytes."""
    contents: JsonObject = {"uri": uri}
    if mime_type is not None:
        contents["mimeType"] = mime_type
    if isinstance(value, str):
        return contents | {"text": value}
    return contents | {"blob": base64.b64encode(value).decode()}


def is_text_type(mime_type: str) -> bool:
    """Whether a file of this type is text."""
    kind = mime_type.partition(";")[0].strip().lower()
    return (
        kind.startswith("text/")
        or kind in ("application/json", "application/xml", "application/javascript", "application/toml")
        or kind.endswith(("+json", "+xml"))
    )


def _guess_type(path: Path | None, default: str) -> str:
    return default if path is None else mimetypes.guess_type(path.name)[0] or default
