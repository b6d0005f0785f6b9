"""Content blocks of an answer: text and links are printed, images, audio and resources saved with `--save`.

Nothing that a server sends decides where a file goes. Its name is the tool's, as it was typed, and a number; its extension is one
of a short list. An existing file is never overwritten, and no symbolic link is followed.
"""

import base64
import binascii
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from toolpost.base.ids import Json
from toolpost.cli.exits import ExitCode
from toolpost.cli.failures import show_error, tell
from toolpost.cli.show import format_size
from toolpost.cli.terminal import printable

BLOCKS_LIMIT: Final = 100
"""Blocks shown of one answer: a server may send tens of thousands of tiny images."""

_NUMBERS_TRIED: Final = 100_000
_NAME_LIMIT: Final = 100
_SHOWN_LIMIT: Final = 200

_ENDINGS: Final = {
    "application/gzip": "gz",
    "application/json": "json",
    "application/pdf": "pdf",
    "application/xml": "xml",
    "application/zip": "zip",
    "audio/aac": "aac",
    "audio/flac": "flac",
    "audio/mp4": "m4a",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/wav": "wav",
    "audio/webm": "weba",
    "audio/x-wav": "wav",
    "image/avif": "avif",
    "image/bmp": "bmp",
    "image/gif": "gif",
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/tiff": "tiff",
    "image/webp": "webp",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/plain": "txt",
    "video/mp4": "mp4",
    "video/webm": "webm",
}
"""File extensions by media type; any other is `.bin`. None of them is executable on any system."""

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, kw_only=True)
class _Attachment:
    kind: str
    media_type: str
    data: bytes

    def __str__(self) -> str:
        return f"{_shorten(self.media_type)}, {format_size(len(self.data))}"


def show_content(blocks: Iterable[Json], *, tool: str, save: Path | None, beside_data: bool) -> ExitCode:
    """Print content blocks, and write those that are not text into the folder `save`.

    Text goes to stdout, or to stderr where it is `beside_data` that other programs may read; the rest is reported on stderr.
    """
    for number, block in enumerate(blocks):
        if number == BLOCKS_LIMIT:
            tell("note", f"the answer has more than {BLOCKS_LIMIT} content blocks; --json prints all", color="yellow")
            break
        kind = str(block.get("type")) if isinstance(block, dict) else "malformed block"
        if kind == "text":
            click.echo(printable(str(block.get("text"))), err=beside_data)
        elif kind == "resource_link":
            tell("link", _format_link(block), color="cyan")
        elif (attachment := _read_attachment(kind, block)) is None:
            tell(_shorten(kind), "cannot be read; --json prints it", color="yellow")
        elif save is not None:
            try:
                path = _save(attachment, tool, save)
            except OSError as error:
                show_error(f"cannot save {attachment} in {save}: {error.strerror or error}")
                return ExitCode.SETUP
            tell("saved", f"{path} ({attachment})", color="green")
        elif attachment.kind == "text":
            click.echo(printable(attachment.data.decode()), err=beside_data)
        else:
            tell(attachment.kind, f"{attachment}; --save DIR writes it to a file", color="cyan")
    return ExitCode.OK


def _read_attachment(kind: str, block: Json) -> _Attachment | None:
    """Decode a block that can be a file; a text resource gets the kind `text`. None if it is malformed."""
    if kind in ("image", "audio"):
        data, media_type = block.get("data"), block.get("mimeType")
    elif kind == "resource" and isinstance(resource := block.get("resource"), dict):
        media_type = resource.get("mimeType")
        if isinstance(text := resource.get("text"), str):
            encoded = text.encode("utf-8", "replace")
            return _Attachment(kind="text", media_type=str(media_type or "text/plain"), data=encoded)
        data = resource.get("blob")
    else:
        return None
    try:
        decoded = base64.b64decode(data, validate=True) if isinstance(data, str) else None
    except (binascii.Error, ValueError):
        return None
    if decoded is None:
        return None
    return _Attachment(kind=kind, media_type=str(media_type or "application/octet-stream"), data=decoded)


def _save(attachment: _Attachment, tool: str, folder: Path) -> Path:
    """Write a new file, with the permissions of the umask; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    name = _UNSAFE.sub("-", tool).strip("-")[:_NAME_LIMIT] or "tool"
    ending = _ENDINGS.get(attachment.media_type.partition(";")[0].strip().lower(), "bin")
    for number in range(1, _NUMBERS_TRIED):
        path = folder / f"{name}-{number}.{ending}"
        try:
            # O_EXCL fails for an existing name, even for a dangling symbolic link.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        except FileExistsError:
            continue
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(attachment.data)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path
    raise FileExistsError(f"there are {_NUMBERS_TRIED - 1:,} files called {name}-….{ending}")


def _format_link(block: Json) -> str:
    name, uri = block.get("title") or block.get("name"), _shorten(str(block.get("uri")))
    media_type = f" ({_shorten(str(block['mimeType']))})" if block.get("mimeType") else ""
    return f"{_shorten(str(name))} {uri}{media_type}" if name else f"{uri}{media_type}"


def _shorten(text: str) -> str:
    """Limit text of a server to one line of `_SHOWN_LIMIT` characters."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_LIMIT else f"{line[:_SHOWN_LIMIT]}…"
