"""Reasons to look at a tool definition: hidden text, instructions to the model, encoded payloads, another tool's name.

A finding is never a proof, and no definition is refused for one; under `contracts = "enforce"` a change that brings one is
quarantined. `scan_definition` reads one definition; `NameIndex` adds what can only be seen next to the tools of other servers.
The instructions themselves are recognized in `injection`.
"""

import base64
import binascii
import codecs
import html
import re
import unicodedata
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import lru_cache
from itertools import chain, islice
from typing import Final, Literal
from urllib.parse import unquote_to_bytes

import msgspec

from toolpost.base import Json, JsonObject, normalize
from toolpost.contracts.compatibility.definition import Definition
from toolpost.contracts.contract import NAME_LIMIT
from toolpost.contracts.display import truncate
from toolpost.contracts.document import to_pointer
from toolpost.contracts.injection import THRESHOLD, Assessment, assess, split_pieces

TEXT_LIMIT = 256 * 1024
"""How many characters of a definition are read; more are reported as `unread`."""
PER_TOOL_LIMIT = 20
MENTION_LIMIT = 1_000
"""How many names in a definition are compared with those of tools: padding must not hide the one that matters."""
DEPTH_LIMIT = 100
PLACE_LIMIT = 4_096

_AROUND = 40
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SHOWN_REASONS = 3
_SHORT = 64
"""How long a text is at most whose judgement is remembered."""


class FindingKind(StrEnum):
    """Public: these values are in JSON and in the docs."""

    HIDDEN_TEXT = "hidden-text"
    """Characters that a person does not see and a model reads."""
    INSTRUCTION = "instruction"
    """Words that tell a model what to do, instead of what the tool does."""
    ENCODED_TEXT = "encoded-text"
    """Such words in an encoding: base64, hex, escapes."""
    UNREAD = "unread"
    """Text beyond the limits of the scan: too much, or nested too deep."""
    SHADOWING = "shadowing"
    """Another server's tool name, imitated or given new rules."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One reason to look at a definition."""

    kind: FindingKind
    place: str
    """A JSON Pointer into the definition."""
    message: str
    excerpt: str
    """The text around it, with hidden characters escaped."""

    def to_json(self) -> JsonObject:
        return {"kind": self.kind.value, "place": self.place, "message": self.message, "excerpt": self.excerpt}

    @property
    def summary(self) -> str:
        """One line for people."""
        return f"{self.place}: {self.message}"


class DefinitionScan(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of one definition; enough for `NameIndex` to compare it with others without reading it again."""

    name: str
    findings: tuple[Finding, ...]
    mentions: tuple[tuple[str, Finding], ...]
    """Words that look like a full tool name, each with the finding to report if such a tool exists."""


def scan_definition(definition: Definition, *, since: Definition | None = None) -> DefinitionScan:
    """Read every text of a definition once; with `since`, only those that are not in that one."""
    known = frozenset(text for _, text, _ in _walk_texts(since)) if since is not None else frozenset()
    found: list[Finding] = []
    unread: dict[str, Finding] = {}
    mentions: dict[str, Finding] = {}
    for place, text, kind in _walk_texts(definition):
        if kind == "unread":
            unread.setdefault(text, Finding(kind=FindingKind.UNREAD, place=place, message=text, excerpt=""))
        # A text that only moved is not new, wherever it is now.
        elif text not in known and len(found) < PER_TOOL_LIMIT:
            roles = _NAME if kind == "name" else _ARGUMENT if "/properties/" in place else _NO_ROLE
            if len(text) > _SHORT or not _is_harmless(text, roles):
                found += _find_in_text(place, text, roles)
            if "__" in text and place != "/name" and len(mentions) < MENTION_LIMIT:
                mentions = dict(islice(_find_mentions(place, text), MENTION_LIMIT)) | mentions
    return DefinitionScan(
        name=definition.name,
        findings=(*unread.values(), *found)[:PER_TOOL_LIMIT],
        mentions=tuple(mentions.items())[:MENTION_LIMIT],
    )


class NameIndex:
    """The names of all tools, to find imitated and mentioned names in constant time."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self._by_skeleton: dict[str, list[str]] = {}
        self._by_own: dict[str, list[str]] = {}
        for name in sorted(self._names):
            server, _, tool = name.partition("__")
            self._by_skeleton.setdefault(_skeleton(name), []).append(name)
            for own in {name, f"{server}_{tool}"}:
                self._by_own.setdefault(own, []).append(name)

    def inspect(self, scan: DefinitionScan) -> list[Finding]:
        """Return the findings of a definition, including those about the tools of other servers."""
        return list(islice(chain(scan.findings, self._find_shadowing(scan)), PER_TOOL_LIMIT))

    def inspect_change(self, old: DefinitionScan, new: DefinitionScan) -> list[Finding]:
        """Return the findings that a change brought; those of the old definition are left out.

        `new` is a scan of the new definition since the old one.
        """
        known = {(found.message, found.excerpt) for found in self.inspect(old)}
        # Text that is not read may have changed too, so `unread` is always new.
        return [
            found
            for found in self.inspect(new)
            if found.kind is FindingKind.UNREAD or (found.message, found.excerpt) not in known
        ]

    def _find_shadowing(self, scan: DefinitionScan) -> Iterator[Finding]:
        name, (_, _, tool) = scan.name, scan.name.partition("__")
        alike = [other for other in self._by_skeleton.get(_skeleton(name), ()) if _is_other_server(other, name)]
        for other in alike:
            yield _make_shadowing(f"cannot be told from `{other}`", name)
        for other in self._by_own.get(tool, ()):
            if other not in alike and _is_other_server(other, name):
                yield _make_shadowing(f"has the name of `{other}`, which is another server's", name)
        for other, finding in scan.mentions:
            if other in self._names and _is_other_server(other, name):
                yield finding


def inspect_definition(definition: Definition, names: NameIndex | None = None) -> list[Finding]:
    """Return the findings of a definition, including those about the tools of other servers."""
    return (names or NameIndex()).inspect(scan_definition(definition))


def inspect_change(old: Definition, new: Definition, names: NameIndex | None = None) -> list[Finding]:
    """Return the findings that a change brought; those of the old definition are left out."""
    return (names or NameIndex()).inspect_change(scan_definition(old), scan_definition(new, since=old))


def _walk_texts(definition: Definition) -> Iterator[tuple[str, str, Literal["text", "name", "unread"]]]:
    """Yield every string that a model may see with its place: all values and all names, whether a client knows them or not.

    What is beyond the limits is yielded as `unread`: otherwise padding would hide what comes after it.
    """
    waiting: list[tuple[str, Json, int, bool]] = [("", definition.to_listed(), 0, False)]
    left = TEXT_LIMIT
    while waiting:
        place, value, depth, is_name = waiting.pop()
        if len(place) > PLACE_LIMIT:
            yield truncate(place), f"is at a place longer than {PLACE_LIMIT} characters, and not read", "unread"
            continue
        if isinstance(value, str):
            yield place, value[:left], "name" if is_name else "text"
            left -= len(value)
            if left < 0:
                yield place, f"is beyond the {TEXT_LIMIT} characters of a definition that are read", "unread"
                return
        elif isinstance(value, dict | list) and depth >= DEPTH_LIMIT:
            yield place, f"is nested deeper than {DEPTH_LIMIT} levels, and not read", "unread"
        elif isinstance(value, dict):
            for key, inner in reversed(value.items()):
                # Names that need an escape are rare, and there are hundreds of thousands of places.
                here = place + to_pointer((key,)) if "/" in key or "~" in key else f"{place}/{key}"
                waiting += [(here, inner, depth + 1, False), (here, key, depth + 1, True)]
        elif isinstance(value, list):
            waiting += [(f"{place}/{number}", inner, depth + 1, False) for number, inner in enumerate(value)][::-1]


# Hidden text

# Format characters and unused planes; escaped here, so that they can be seen.
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff\u2800\ue000-\uf8ff\U000f0000-\U0010fffd]|[\ufe00-\ufe0f]{2,}|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_TERMINAL_ESCAPE = re.compile("\x1b\\[[0-9;]*[A-Za-z]")
# Joiners and direction marks are legitimate between emoji and in scripts that need them.
_JOINERS = frozenset("\u200c\u200d\u200e\u200f\u061c\u00ad\ufeff")


def _find_hidden_text(place: str, text: str) -> Iterator[Finding]:
    if text.isascii() and text.isprintable():
        return
    for found in _HIDDEN.finditer(text):
        if not _is_legitimate(text, found):
            what = ", ".join(
                f"U+{ord(letter):04X} {unicodedata.name(letter, 'control character').lower()}"
                for letter in dict.fromkeys(found[0][:3])
            )
            message = f"{what}: a person does not see it, a model reads it"
            yield _make_finding(FindingKind.HIDDEN_TEXT, place, message, text, *found.span())
            return


def _is_legitimate(text: str, found: re.Match[str]) -> bool:
    if found[0] not in _JOINERS:
        return False
    before, after = text[max(0, found.start() - 1) : found.start()], text[found.end() : found.end() + 1]
    if found[0] == "\ufeff":
        return found.start() == 0
    # Between ASCII letters an invisible character has no use but to hide a word from filters.
    return any(letter and not letter.isascii() for letter in (before, after)) or found[0] == "\u00ad"


# Instructions

_NAME: Final = frozenset({"@name"})
_ARGUMENT: Final = frozenset({"@argument"})
_NO_ROLE: Final[frozenset[str]] = frozenset()


@lru_cache(maxsize=16_384)
def _is_harmless(text: str, roles: frozenset[str]) -> bool:
    """Whether there is nothing in a short text: most of a definition is keywords and names that others have too."""
    return not _find_in_text("", text, roles)


def _find_in_text(place: str, text: str, roles: frozenset[str]) -> list[Finding]:
    # A model reads `doNotTell` and `do_not_tell` as the words that they are made of.
    words = _CAMEL_CASE.sub(" ", text.replace("_", " ").replace("-", " ")) if roles is _NAME else text
    return [*_find_hidden_text(place, text), *_find_instructions(place, words, roles)]


def _find_instructions(place: str, text: str, roles: frozenset[str]) -> Iterator[Finding]:
    """Yield at most one finding: what the text says, or what is encoded in it."""
    for piece in split_pieces(text):
        found = assess(piece, roles)
        if found.weight >= THRESHOLD:
            yield _make_instruction(FindingKind.INSTRUCTION, place, _join_reasons(found), found)
            return
        for how, decoded in decode_hidden(piece):
            found = assess(decoded, least=THRESHOLD / 2)
            # Harmless text is hardly ever encoded: half of the weight is enough.
            if found.weight >= THRESHOLD / 2:
                message = f"{how} that decodes to a text which {_join_reasons(found)}"
                yield _make_instruction(FindingKind.ENCODED_TEXT, place, message, found)
                return


def _make_instruction(kind: FindingKind, place: str, message: str, found: Assessment) -> Finding:
    return _make_finding(kind, place, message, found.text, found.matches[0].start, found.matches[0].end)


def _join_reasons(found: Assessment) -> str:
    return ", and ".join(hit.family for hit in found.matches[:_SHOWN_REASONS])


# Shadowing


# Does not look for the `__` itself: that would take quadratic time on a long word.
_WORD = re.compile(r"[A-Za-z0-9_-]+")


def _is_other_server(other: str, name: str) -> bool:
    its_server = _server_of(other)
    return bool(its_server) and its_server != _server_of(name)


def _server_of(name: str) -> str:
    # The name of a server's instructions has a colon instead.
    return name.partition("__")[0].partition(":")[0]


def _make_shadowing(message: str, name: str) -> Finding:
    return Finding(kind=FindingKind.SHADOWING, place="/name", message=message, excerpt=truncate(name))


def _find_mentions(place: str, text: str) -> Iterator[tuple[str, Finding]]:
    for found in _WORD.finditer(text):
        if "__" in found[0] and len(found[0]) <= NAME_LIMIT:
            message = f"speaks of `{found[0]}`, which is another server's"
            yield found[0], _make_finding(FindingKind.SHADOWING, place, message, text, *found.span())


_LOOK_ALIKE = str.maketrans({"0": "o", "1": "l", "i": "l", "5": "s", "-": "_", ".": "_"})


def _skeleton(name: str) -> str:
    """Return a name with look-alike characters replaced: names with the same skeleton are confused by people."""
    return normalize("NFKD", name).casefold().translate(_LOOK_ALIKE)


def _make_finding(kind: FindingKind, place: str, message: str, text: str, start: int, end: int) -> Finding:
    around = text[max(0, start - _AROUND) : end + _AROUND]
    # Escaped: an excerpt is printed at a terminal, and must show what it is about.
    around = _TERMINAL_ESCAPE.sub(lambda found: f"⟨{found[0][1:]}⟩", around)
    around = _HIDDEN.sub(lambda found: "".join(f"⟨U+{ord(letter):04X}⟩" for letter in found[0]), around)
    return Finding(kind=kind, place=place, message=message, excerpt=truncate(around))


# Encodings: texts that a model can decode and a person does not read

_SHORTEST_DECODED: Final = 8
"""Shorter texts are ignored: they hold no instruction."""

_DECODED_DEPTH: Final = 2
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{16,}")
_HEX: Final = re.compile(r"(?<![0-9A-Za-z])(?:0x)?((?:[0-9A-Fa-f]{2}){10,}|(?:[0-9A-Fa-f]{2}[ :,]){9,}[0-9A-Fa-f]{2})")
_ESCAPE: Final = re.compile(r"\\x([0-9A-Fa-f]{2})|\\u\{?([0-9A-Fa-f]{4,5})\}?|\\([0-7]{3})")
_PERCENT: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})")
_ENTITY: Final = re.compile(r"&#x?[0-9A-Fa-f]{2,5};")
# A few escapes are ordinary; an encoded sentence has more.
_MANY: Final = 6
# Words that nearly every injected instruction has: decoding is tried where their ROT13 or reversed form occurs.
_TELLTALE: Final = (
    *("ignore", "previous", "instructions", "disregard", "system", "prompt", "password", "credentials", "secret"),
    *("reveal", "forward", "user", "conversation"),
)
_ROT13: Final = tuple(codecs.encode(word, "rot13") for word in _TELLTALE)
_BACKWARDS: Final = tuple(word[::-1] for word in _TELLTALE)


def decode_hidden(text: str, depth: int = _DECODED_DEPTH) -> Iterator[tuple[str, str]]:
    """Yield how a text, or a run in it, may be decoded, and the decoded text; only results that are text again."""
    for how, decoded in _decode_candidates(text):
        if len(decoded) >= _SHORTEST_DECODED:
            yield how, decoded
            if depth > 1 and how not in {"backwards", "ROT13"}:
                yield from decode_hidden(decoded, depth - 1)


def _decode_candidates(text: str) -> Iterator[tuple[str, str]]:
    for found in _BASE64.finditer(text):
        if (plain := _decode_base64(found[0])) is not None:
            yield "base64", plain
    for found in _HEX.finditer(text):
        digits = re.sub(r"[ :,]", "", found[1])
        if (plain := _decode_utf8(bytes.fromhex(digits))) is not None:
            yield "hex", plain
    if "\\" in text and _has_many(_ESCAPE, text):
        yield (
            "escapes",
            _ESCAPE.sub(lambda code: chr(int(code[3], 8) if code[3] else int(code[1] or code[2], 16)), text),
        )
    if "%" in text and _has_many(_PERCENT, text):
        yield "percent-encoding", unquote_to_bytes(text).decode(errors="replace")
    if "&#" in text and _has_many(_ENTITY, text):
        yield "character references", html.unescape(text)
    lowered = text.lower()
    if any(map(lowered.__contains__, _ROT13)):
        yield "ROT13", codecs.encode(text, "rot13")
    if any(map(lowered.__contains__, _BACKWARDS)):
        yield "backwards", text[::-1]


def _has_many(pattern: re.Pattern[str], text: str) -> bool:
    return sum(1 for _, _ in zip(pattern.finditer(text), range(_MANY), strict=False)) == _MANY


def _decode_base64(run: str) -> str | None:
    standard = run.replace("-", "+").replace("_", "/")
    # A run may begin with characters of the word before it, or be cut in the middle of a group of four.
    for start in range(4):
        rest = standard[start : start + (len(standard) - start) // 4 * 4 + 4]
        padded = rest + "=" * (-len(rest) % 4)
        try:
            text = _decode_utf8(base64.b64decode(padded)) or _decode_utf8(base64.b64decode(rest[: len(rest) // 4 * 4]))
        except (binascii.Error, ValueError):
            continue
        if text is not None:
            return text
    return None


def _decode_utf8(data: bytes) -> str | None:
    """Return bytes as text if they are printable UTF-8, otherwise None."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    # `isprintable` is false for line breaks and tabs.
    is_text = bool(text) and "".join(text.split()).isprintable()
    return text if is_text else None
