"""Mask credentials in text: keys of known services, private keys, passwords in URLs, and literals named like `password`.

Line breaks are kept, so that line numbers stay correct. `redaction` judges structured values by their names; here there is only
text, so a value must look like a credential too. Every pattern is linear in its text: repetitions are possessive, and can start
only at the beginning of a run. A text is processed in pieces, because Python's regex engine holds the interpreter lock.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal

from toolpost.base import REDACTED, is_secret_name

Style = Literal["code", "config", "prose"]
"""What an unquoted word after `name =` is: in code a name, in a configuration a value, in prose either."""

_PIECE: Final = 1 << 15
"""Characters processed at once: a few milliseconds at most."""

# Most lines have none of these, and are skipped.
_HINT: Final = re.compile(
    r"pass|pwd|secret|token|key|auth|cred|cookie|jwt|bearer|basic|://|gh[pousr]_|github_pat|glpat|xox|xapp|akia|asia|aiza"
    r"|sk[-_]|rk_|whsec|npm_|hf_|pypi-|ya29|sg\.|dop_v1|shpat|glsa|eyj|connection"
)
"""Searched in lower case: a case-insensitive search takes ten times as long."""
_KNOWN: Final = re.compile(
    r"(?<![\w-])(?:(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])|gh[pousr]_[A-Za-z0-9]{20,}+|github_pat_\w{20,}+|gl(?:pat|sa)[-_][\w-]{16,}+"
    r"|xox[abeoprs]-[\w-]{10,}+|xapp-[\w-]{20,}+|AIza[\w-]{30,}+|sk-[\w-]{20,}+|[srp]k_(?:live|test)_\w{16,}+|whsec_\w{20,}+"
    r"|npm_[A-Za-z0-9]{30,}+|hf_[A-Za-z0-9]{20,}+|pypi-[\w-]{30,}+|ya29\.[\w-]{20,}+|SG\.[\w-]{16,}+\.[\w-]{16,}+"
    r"|dop_v1_\w{32,}+|shpat_\w{20,}+|eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+)"
)
_PASSWORD_IN_URL: Final = re.compile(
    r"(?<![\w+.-])([A-Za-z][\w+.-]{1,20}+://[^\s/@:\"'`<>]{0,100}+:)([^\s/@\"'`<>]{3,200}+)(?=@)"
)
_SCHEME: Final = re.compile(r"(?<![\w-])((?:Bearer|Basic|ApiKey)\s{1,4}+)([A-Za-z0-9+/=._~-]{16,}+)", re.IGNORECASE)
_NAME: Final = r"(?<![\w.-])(?P<name>[A-Za-z_][\w.-]{1,80}+)"
_ANNOTATION: Final = r"(?:\s{0,4}+:\s{0,4}+[&A-Za-z_][\w.\[\]|,&<>? ]{0,60}?|\s{1,4}+string)?"
_LITERAL: Final = r"(?P<quote>[\"'`])(?P<value>(?:(?!(?P=quote))[^\\\n]|\\.)*+)"
_QUOTED: Final = re.compile(
    _NAME + r"[\"'\]]{0,2}+" + _ANNOTATION + r"\s{0,8}+(?::=|=>|==|[:=])\s{0,8}+[A-Za-z]{0,2}+" + _LITERAL
)
_CALL: Final = re.compile(r"\(\s{0,2}+[\"'](?P<name>[A-Za-z_][\w.-]{1,80}+)[\"']\s{0,4}+,\s{0,4}+" + _LITERAL)
_UNQUOTED: Final = re.compile(
    r"(?<![\w.-])(?P<name>[A-Za-z_][\w.-]{1,80}+)[\"']?+\s{0,8}+[:=]\s{0,8}+(?P<value>[^\s\"'`,;(){}\[\]<>|&$%#=][^\s\"'`,;(){}\[\]<>|&#]{3,}+)"
)
_FLAG: Final = re.compile(r"(?<![\w-])--(?P<name>[A-Za-z][\w-]{2,40}+)[ =]{1,3}+(?P<value>[^\s\"'`$<(-][^\s\"'`]{3,}+)")
_PARAMETER: Final = re.compile(r"[?&;](?P<name>[A-Za-z_][\w.-]{1,60}+)=(?P<value>[^\s&;#\"'`<>(){}]{6,}+)")
_ELEMENT: Final = re.compile(r"<(?P<name>[A-Za-z_][\w.-]{1,60}+)>(?P<value>[^<\n]{4,200}+)(?=</)")
_FOR_ALL: Final = (_QUOTED, _CALL, _PARAMETER, _ELEMENT)
_OTHERS: Final[dict[Style, tuple[re.Pattern[str], ...]]] = {
    "code": (),
    "config": (_UNQUOTED, _FLAG),
    "prose": (_UNQUOTED, _FLAG),
}

_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END: Final = "-----END "
_OF_A_KEY: Final = re.compile(
    r"[\s\"'#*/+>|,;\\-]*+(?:[A-Za-z0-9+/=]*+|[A-Z][\w-]{0,40}+:\s.*+)(?:\\[nr])*+[\s\"'+,;)\\]*+"
)
"""A line of a private key's body, or one of its headers, also inside a string or comment of a program."""
_BODY: Final = re.compile(r"(?:[A-Za-z0-9+/=]|\\[nr]){16,}+")
_LONGEST_KEY: Final = 500

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SEPARATOR: Final = re.compile(r"[^A-Za-z0-9]+")
_ABOUT: Final = frozenset(
    {
        *("class", "description", "dir", "endpoint", "error", "expires", "field", "file", "folder", "format", "header"),
        *("help", "hint", "host", "id", "kind", "label", "length", "message", "method", "mode", "param", "path"),
        *("pattern", "placeholder", "policy", "prefix", "provider", "regex", "scheme", "suffix", "text", "title"),
        *("ttl", "uri", "url", "version"),
    }
)
"""Last words of names that describe a secret without being one."""
_PASSWORDS: Final = frozenset({"passphrase", "passwd", "password", "passwords", "pwd"})
_PLACEHOLDER: Final = re.compile(
    r"[$%<{].*+|[x*.\-_#•…]++|(?:your|my|the|some|any|a|an|enter|insert|replace|change|todo|fixme)(?![a-z0-9]).*+|.*?(?:example|placeholder"
    r"|changeme|change[-_]me|dummy|redacted|here\b).*+|(?:none|null|nil|undefined|true|false|yes|no|on|off|str|string|text|bool|boolean"
    r"|int|integer|number|object|any|required|optional|hidden|secret|secrets|token|tokens|pass|passwd|password|passwords|pwd|passphrase"
    r"|test|testing|admin|user|basic|bearer|default|self|env|environ)",
    re.IGNORECASE | re.DOTALL,
)
_TEMPLATE: Final = re.compile(r"\$?\{[^{}]*+\}|%\(?\w*+\)?[sd]")


def mask(text: str, style: Style) -> str:
    """Return a text with its credentials replaced; the same object if there are none."""
    masker = Masker(style)
    masked = "".join(map(masker.lines, _pieces(text, "\n")))
    return text if masked == text else masked


def _pieces(text: str, ends: str) -> Iterator[str]:
    """Split a text after one of these characters, the first in `ends` that is found within another piece."""
    start = 0
    while start < len(text):
        least = min(start + _PIECE, len(text))
        found = (text.find(end, least, None if end == "\n" else least + _PIECE) for end in ends)
        stop = next((place + 1 for place in found if place >= 0), len(text) if "\n" in ends else least + _PIECE)
        yield text[start:stop]
        start = stop


class Masker:
    """Masks a text that comes line by line: a private key spans many lines."""

    def __init__(self, style: Style) -> None:
        self._patterns = (*_FOR_ALL, *_OTHERS[style])
        self._is_strict = style == "prose"
        self._key_lines = 0
        """How many more lines may belong to a private key."""

    def pass_by(self, line: str) -> None:
        """Process a line that is not shown: a private key may begin in it."""
        if self._key_lines or "-----BEGIN " in line:
            self._without_keys(line)

    def lines(self, text: str) -> str:
        """Mask several lines; lines without a hint are skipped as a block."""
        if self._key_lines or "-----BEGIN " in text:
            return "\n".join(map(self.line, text.split("\n")))
        lower = text.lower()
        if len(lower) != len(text):  # Some characters become two in lower case.
            return "\n".join(map(self.line, text.split("\n")))
        out: list[str] = []
        at = 0
        while (hint := _HINT.search(lower, at)) is not None:
            start, end = max(at, text.rfind("\n", at, hint.start()) + 1), text.find("\n", hint.end())
            end = len(text) if end < 0 else end
            out += text[at:start], self._mask(text[start:end])
            at = end
        return "".join((*out, text[at:])) if out else text

    def line(self, text: str) -> str:
        text = self._without_keys(text)
        return self._mask(text) if _HINT.search(text.lower()) else text

    def _without_keys(self, line: str) -> str:
        """Replace the body of a private key; its first and last line may be shown."""
        if self._key_lines:
            if (end := line.find(_END)) >= 0:
                self._key_lines = 0
                return _BODY.sub(REDACTED, line[:end]) + line[end:]
            if _OF_A_KEY.fullmatch(line):
                self._key_lines -= 1
                return REDACTED if line.strip() else line
            self._key_lines = 0
        if "-----BEGIN " not in line or (begin := _BEGIN.search(line)) is None:
            return line
        head, rest = line[: begin.end()], line[begin.end() :]
        if (end := rest.find(_END)) < 0:
            self._key_lines = _LONGEST_KEY
            end = len(rest)
        return head + _BODY.sub(REDACTED, rest[:end]) + rest[end:]

    def _mask(self, line: str) -> str:
        # After these characters a split separates neither a credential nor a name from its value.
        return (
            "".join(map(self._mask_piece, _pieces(line, ",;}{ "))) if len(line) > 2 * _PIECE else self._mask_piece(line)
        )

    def _mask_piece(self, text: str) -> str:
        text = _KNOWN.sub(_mask_known, text)
        if "://" in text:
            text = _PASSWORD_IN_URL.sub(_mask_second, text)
        text = _SCHEME.sub(_mask_second, text)
        for pattern in self._patterns:
            text = pattern.sub(self._mask_value, text)
        return text

    def _mask_value(self, found: re.Match[str]) -> str:
        name, value = found["name"], found["value"]
        is_strict = found.re is _CALL or (self._is_strict and found.re is not _QUOTED)
        if not value or not is_credential(name, value, strict=is_strict):
            return found[0]
        start, end = found.span("value")
        return f"{found.string[found.start() : start]}{REDACTED}{found.string[end : found.end()]}"


def _mask_known(found: re.Match[str]) -> str:
    # Requires a digit: `sk-fading-circle-of-dots` is a name.
    return REDACTED if any(character.isdigit() for character in found[0]) else found[0]


def _mask_second(found: re.Match[str]) -> str:
    value = found[2][:200]
    is_one = _is_random(value) if found.re is _SCHEME else not _PLACEHOLDER.fullmatch(value)
    return f"{found[1]}{REDACTED}" if is_one else found[0]


def is_credential(name: str, value: str, *, strict: bool = False) -> bool:
    """Judge a literal by the name that it is assigned to; `strict` requires it to look random, whatever the name."""
    value = value.strip()
    if value == REDACTED or not _is_secret(name) or len(value) < 4 or value.lower() == name.lower():
        return False
    if any(character.isspace() for character in value) or _PLACEHOLDER.fullmatch(value[:200]):
        return False
    if "{" in value or "%" in value:
        value = _TEMPLATE.sub("", value)
    if not strict and _WORD.findall(name)[-1].lower() in _PASSWORDS:
        return len(value) >= 4
    return _is_random(value[:200])


def _is_secret(name: str) -> bool:
    # In `config.auth.tokens.url` the last word says what it is.
    if not is_secret_name(name):
        return False
    words = _WORD.findall(name)
    return words[-1].lower() not in _ABOUT


def _is_random(value: str) -> bool:
    """Return whether a value looks generated: `tok-8f3a9c01b2`, not `next-page-token-1`."""
    return len(value) >= 8 and not all(map(_is_word, _SEPARATOR.split(value)))


def _is_word(part: str) -> bool:
    if len(part) <= 4 or part.isdecimal():
        return len(part) < 8
    parts = _WORD.findall(part)
    if part.isalpha():
        return len(part) < 20 * len(parts) and len(part) >= 3 * len(parts)
    # Digits at the end number something: `client2`, `oauth20`.
    return len(parts) == 2 and parts[1].isdecimal() and len(parts[1]) <= 4 and parts[0].isalpha()
