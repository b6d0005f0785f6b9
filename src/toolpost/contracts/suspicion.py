"""What in a definition may be meant for the model and not for the person: hidden text, orders, another tool's name.

A suspicion is a reason to look, never a proof: nothing is refused for it.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import chain, islice

import msgspec

from toolpost.contracts.compatibility.definition import Definition
from toolpost.contracts.contract import NAME_LIMIT
from toolpost.contracts.ids import Json, JsonObject
from toolpost.contracts.shown import cut

TEXT_LIMIT = 100_000
PER_TOOL_LIMIT = 20
DEPTH_LIMIT = 100
PLACE_LIMIT = 500
"""How long a place is told: beyond this it names what is around, and what is there is read all the same."""

_AROUND = 40


class SuspicionKind(StrEnum):
    """What is suspected."""

    HIDDEN_TEXT = "hidden-text"
    """Characters that a person does not see and a model reads."""
    INSTRUCTION = "instruction"
    """Words that tell a model what to do, rather than what the tool does."""
    SHADOWING = "shadowing"
    """The name of another server's tool, taken or given new rules."""


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    """One reason to look at a definition."""

    kind: SuspicionKind
    place: str
    """A JSON Pointer into the definition."""
    message: str
    excerpt: str
    """The words around it, with what is hidden written out."""

    def to_json(self) -> JsonObject:
        """Write it as plain JSON."""
        return {"kind": self.kind.value, "place": self.place, "message": self.message, "excerpt": self.excerpt}

    @property
    def told(self) -> str:
        """Say it in a line, for people."""
        return f"{self.place}: {self.message}"


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A definition, looked at by itself: what it takes to see it beside others, without reading it again."""

    name: str
    suspicions: tuple[Suspicion, ...]
    spoken_of: tuple[tuple[str, Suspicion], ...]
    """What reads like a tool's whole name, each with what is suspected if there is such a tool."""


def look_at(definition: Definition) -> Look:
    """Read every text of a definition once."""
    found: list[Suspicion] = []
    spoken_of: dict[str, Suspicion] = {}
    for place, text in _texts(definition):
        found += [*_hidden(place, text), *_instructions(place, text)][: PER_TOOL_LIMIT - len(found)]
        if place != "/name" and len(spoken_of) < PER_TOOL_LIMIT:
            spoken_of = dict(_spoken_of(place, text)) | spoken_of
    return Look(name=definition.name, suspicions=tuple(found), spoken_of=tuple(spoken_of.items())[:PER_TOOL_LIMIT])


class Names:
    """The names of all tools, for what bears or speaks of another server's; as quick for thousands as for one."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self._by_look: dict[str, list[str]] = {}
        self._by_own: dict[str, list[str]] = {}
        for name in sorted(self._names):
            server, _, tool = name.partition("__")
            self._by_look.setdefault(_look(name), []).append(name)
            for own in {name, f"{server}_{tool}"}:
                self._by_own.setdefault(own, []).append(name)

    def suspicions(self, look: Look) -> list[Suspicion]:
        """Return the reasons to look at a definition, beside the tools of all servers."""
        return list(islice(chain(look.suspicions, self._shadows(look)), PER_TOOL_LIMIT))

    def brought(self, old: Look, new: Look) -> list[Suspicion]:
        """Return the reasons that a change has brought: what was suspected before is not said again."""
        known = {(found.message, found.excerpt) for found in self.suspicions(old)}
        return [found for found in self.suspicions(new) if (found.message, found.excerpt) not in known]

    def _shadows(self, look: Look) -> Iterator[Suspicion]:
        """Yield how a tool bears the name of another server's, or speaks of it."""
        name, (_, _, tool) = look.name, look.name.partition("__")
        alike = [other for other in self._by_look.get(_look(name), ()) if _is_anothers(other, name)]
        for other in alike:
            yield _shadow(f"cannot be told from `{other}`", name)
        for other in self._by_own.get(tool, ()):
            if other not in alike and _is_anothers(other, name):
                yield _shadow(f"has the name of `{other}`, which is another server's", name)
        for other, suspicion in look.spoken_of:
            if other in self._names and _is_anothers(other, name):
                yield suspicion


def suspicions(definition: Definition, names: Names | None = None) -> list[Suspicion]:
    """Return the reasons to look at a definition, beside the tools of all servers."""
    return (names or Names()).suspicions(look_at(definition))


def new_suspicions(old: Definition, new: Definition, names: Names | None = None) -> list[Suspicion]:
    """Return the reasons that a change has brought: what was suspected before is not said again."""
    return (names or Names()).brought(look_at(old), look_at(new))


def _texts(definition: Definition) -> Iterator[tuple[str, str]]:
    """Yield every text that a model may see, and its place: names, descriptions, defaults, examples, values."""
    waiting: list[tuple[str, Json, int]] = [("", definition.to_json(), 0)]
    left = TEXT_LIMIT
    while waiting and left > 0:
        place, value, depth = waiting.pop()
        if isinstance(value, str):
            yield place, value[:left]
            left -= len(value)
        elif isinstance(value, dict) and depth < DEPTH_LIMIT:
            for key, inner in value.items():
                # Every text holds its place: with names of any length, a small schema would fill gigabytes.
                here = place if len(place) > PLACE_LIMIT else f"{place}/{_step(key)}"
                waiting += [(here, inner, depth + 1), (here, key, depth + 1)]
        elif isinstance(value, list) and depth < DEPTH_LIMIT:
            waiting += [(f"{place}/{number}", inner, depth + 1) for number, inner in enumerate(value)]


def _step(key: str) -> str:
    return key[:PLACE_LIMIT].replace("~", "~0").replace("/", "~1")


# Hidden text

# Format characters and unused planes; written by number, because here above all they must be seen.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]|[\ufe00-\ufe0f]{2,}|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)
_ESCAPED = re.compile("\x1b\\[[0-9;]*[A-Za-z]")
# Where a joiner or a mark of direction has its place: between emoji, and in scripts that need them.
_JOINERS = frozenset("\u200c\u200d\u200e\u200f\u061c\u00ad\ufeff")


def _hidden(place: str, text: str) -> Iterator[Suspicion]:
    if text.isascii() and text.isprintable():
        return
    for found in _UNSEEN.finditer(text):
        if not _has_its_place(text, found):
            what = ", ".join(_name_of(letter) for letter in dict.fromkeys(found[0][:3]))
            message = f"{what}: a person does not see it, a model reads it"
            yield _suspicion(SuspicionKind.HIDDEN_TEXT, place, message, text, found)
            return


def _name_of(letter: str) -> str:
    return f"U+{ord(letter):04X} {unicodedata.name(letter, 'control character').lower()}"


def _has_its_place(text: str, found: re.Match[str]) -> bool:
    if found[0] not in _JOINERS:
        return False
    start, end = found.span()
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    if found[0] == "\ufeff":
        return start == 0
    # An invisible sign between letters that need none hides a word from filters.
    return any(letter and not letter.isascii() for letter in (before, after)) or found[0] == "\u00ad"


# Instructions

# Within one sentence, and never far: a search takes time in proportion to the text.
_NEAR = r"[^.\n]{0,40}"
_HIDE = (
    r"\b(?:do not|don't|never|without) (?:tell|mention|inform|notify|reveal|show|alert|let)(?:ing)?\b"
    rf"{_NEAR}\busers?\b"
)
_FORGET = (
    r"\b(?:ignore|disregard|forget|override)\b"
    rf"{_NEAR}\b(?:previous|prior|earlier|above|preceding|system|other)\b"
    rf"{_NEAR}\b(?:instruction|prompt|message|rule|guideline|direction)s?\b"
)
_MARK = r"<\s*+(?:/\s*+)?(?:important|system|instructions?|secret|hidden|admin|assistant|prompt)\s*>"
_FILES = (
    r"(?:~|/home/\w+|/root|\$HOME|%USERPROFILE%)[/\\]\.(?:ssh|aws|gnupg|cursor|claude|kube|netrc|env)\b"
    r"|\bid_rsa\b|/etc/(?:passwd|shadow)\b"
)
_FIRST = (
    r"\b(?:before|prior to) (?:using|calling|invoking|running) (?:any|every|all|each)\b"
    rf"{_NEAR}\btools?\b{_NEAR}\b(?:must|always|call|read|send)\b"
)
_CARRY = (
    r"\b(?:you|the (?:model|assistant|agent|ai|llm)) (?:must|should|have to) (?:always )?"
    rf"(?:read|send|include|pass|forward|copy|upload)\b{_NEAR}"
    r"\b(?:contents?|conversation|chat history|system prompt|credentials?|passwords?|private keys?)\b"
)
_ASK = (
    rf"\b(?:pass|send|include|provide|forward|insert|put|copy)\b{_NEAR}"
    r"\b(?:system prompt|chat history|conversation history|previous messages)\b"
)
_INSTRUCTIONS = {
    message: re.compile(pattern, re.IGNORECASE)
    for message, pattern in (
        ("tells a model to forget what it was told", _FORGET),
        ("tells a model to keep something from the user", _HIDE),
        ("marks words as orders", _MARK),
        ("asks for files or secrets that are not the tool's business", _FILES),
        ("tells a model to call it before anything else", _FIRST),
        ("tells a model to carry off what it knows", _CARRY),
        ("asks for the conversation or the system prompt", _ASK),
    )
}


def _instructions(place: str, text: str) -> Iterator[Suspicion]:
    for message, pattern in _INSTRUCTIONS.items():
        if found := pattern.search(text):
            yield _suspicion(SuspicionKind.INSTRUCTION, place, message, text, found)


# Shadowing


# Without the `__`: to look for that inside would take time in proportion to the square of a long word.
_WORD = re.compile(r"[A-Za-z0-9_-]+")


def _is_anothers(other: str, name: str) -> bool:
    its_server = other.partition("__")[0]
    return bool(its_server) and its_server != name.partition("__")[0]


def _shadow(message: str, name: str) -> Suspicion:
    return Suspicion(kind=SuspicionKind.SHADOWING, place="/name", message=message, excerpt=cut(name))


def _spoken_of(place: str, text: str) -> Iterator[tuple[str, Suspicion]]:
    for found in _WORD.finditer(text) if "__" in text else ():
        if "__" in found[0] and len(found[0]) <= NAME_LIMIT:
            message = f"speaks of `{found[0]}`, which is another server's"
            yield found[0], _suspicion(SuspicionKind.SHADOWING, place, message, text, found)


_ALIKE = str.maketrans({"0": "o", "1": "l", "i": "l", "5": "s", "-": "_", ".": "_"})


def _look(name: str) -> str:
    """Return a name as it looks at a glance."""
    return unicodedata.normalize("NFKD", name).casefold().translate(_ALIKE)


def _suspicion(kind: SuspicionKind, place: str, message: str, text: str, found: re.Match[str]) -> Suspicion:
    start, end = max(0, found.start() - _AROUND), min(len(text), found.end() + _AROUND)
    return Suspicion(kind=kind, place=place, message=message, excerpt=cut(_written_out(text[start:end])))


def _written_out(text: str) -> str:
    """Return a text with its hidden characters as their numbers."""
    plain = _ESCAPED.sub(lambda found: f"⟨{found[0][1:]}⟩", text)
    return _UNSEEN.sub(lambda found: "".join(f"⟨U+{ord(letter):04X}⟩" for letter in found[0]), plain)
