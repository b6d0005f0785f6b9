"""What a server's settings hold that must not be shown, and how it is written instead.

A secret is what stands under a secret name (`GITHUB_TOKEN`, `--api-key`, `?token=`) or looks like a key that a known service
gives out. A reference, `${GITHUB_TOKEN}`, is none.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from toolpost.config.servers import ServerSettings
from toolpost.config.variables import Reference, pieces_of
from toolpost.contracts.redaction import REDACTED, is_secret_name

Rewrite = Callable[[str, str, str], str]
"""Takes the key that holds a secret, the secret's own name and the secret; returns what to write."""

_KNOWN_KEY: Final = re.compile(
    # A digit, and no letter before it: `task-management-server` is a name.
    r"(?<![A-Za-z0-9])(?:(?=[\w-]*\d)(?:(?:sk|pk|rk)[-_][\w-]{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[abeoprs]-[\w-]{10,}|AKIA[A-Z0-9]{12,}|AIza[\w-]{20,}|(?:npm|hf|ntn|secret|lin_api|figd|shpat|dop_v1)_\w{16,}"
    r"|(?:pypi|tvly)-[\w-]{16,})|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----.*)",
    re.DOTALL,
)
_SCHEME: Final = re.compile(r"((?:Bearer|Basic|Token|Digest|ApiKey)\s+)(.*)", re.IGNORECASE | re.DOTALL)
_FLAG: Final = re.compile(r"(-{1,2}([A-Za-z][\w-]*)=)(.*)", re.DOTALL)
_ASSIGNMENT: Final = re.compile(r"(([A-Za-z_]\w*)=)(.*)", re.DOTALL)
_HEADER: Final = re.compile(r"(([A-Za-z][\w-]*):\s*)(.*)", re.DOTALL)
_QUERY: Final = re.compile(r"([?&#]([^=&#]+)=)([^&#]*)")
_FILE: Final = re.compile(r".*(?:file|path|dir)", re.IGNORECASE)
_PASSWORD: Final = re.compile(r"(?<=://)([^/@\s?#:]*:)([^/@\s]*)(?=@)")


def without_secrets(server: ServerSettings) -> ServerSettings:
    """Return the settings as they may be shown."""
    return rewritten(server, lambda _key, _name, _secret: REDACTED)


def rewritten(server: ServerSettings, rewrite: Rewrite) -> ServerSettings:
    """Return the settings with every literal secret written anew."""
    return msgspec.structs.replace(
        server,
        env={name: _under(name, value, f"env.{name}", rewrite) for name, value in server.env.items()},
        headers={name: _under(name, value, f"headers.{name}", rewrite) for name, value in server.headers.items()},
        args=_arguments(server.args, rewrite),
        command=server.command and _loose(server.command, "command", rewrite),
        url=server.url and _loose(server.url, "url", rewrite),
        cwd=server.cwd and _loose(server.cwd, "cwd", rewrite),
    )


def _under(name: str, value: str, key: str, rewrite: Rewrite) -> str:
    """Rewrite what stands under a name."""
    if not _is_secret(name) and not _KNOWN_KEY.fullmatch(value):
        return _loose(value, key, rewrite)
    scheme = _SCHEME.fullmatch(value)
    opening, held = (scheme[1], scheme[2]) if scheme else ("", value)
    return opening + _secret(name, held, key, rewrite)


def _is_secret(name: str) -> bool:
    # Where a secret is kept may be said.
    return is_secret_name(name) and not _FILE.fullmatch(name)


def _secret(name: str, value: str, key: str, rewrite: Rewrite) -> str:
    """Rewrite what is secret as a whole; what consists of references is none, but their defaults are."""
    if not value.strip():
        return value
    pieces = list(pieces_of(value))
    if not all(isinstance(piece, Reference) and not piece.is_escaped for piece in pieces):
        return rewrite(key, name, value)
    return "".join(_reference(piece, name, key, rewrite) for piece in pieces if isinstance(piece, Reference))


def _reference(reference: Reference, name: str, key: str, rewrite: Rewrite) -> str:
    if not reference.default:
        return reference.text
    new = _secret(name, reference.default, key, rewrite)
    return f"{reference.text[: -len(reference.default) - 1]}{new}}}"


def _loose(value: str, key: str, rewrite: Rewrite) -> str:
    """Rewrite what gives itself away in a text that is not secret as a whole."""
    value = _PASSWORD.sub(lambda found: found[1] + _secret("password", found[2], key, rewrite), value)
    value = _QUERY.sub(
        lambda found: found[1] + _secret(found[2], found[3], key, rewrite) if _is_secret(found[2]) else found[0],
        value,
    )
    return _KNOWN_KEY.sub(lambda found: rewrite(key, "key", found[0]), value)


def _arguments(words: list[str], rewrite: Rewrite) -> list[str]:
    shown: list[str] = []
    for number, word in enumerate(words):
        key = f"args[{number}]"
        flag = words[number - 1] if number else ""
        if re.fullmatch(r"-{1,2}[A-Za-z][\w-]*", flag) and _is_secret(flag) and not word.startswith("-"):
            shown.append(_under(flag.lstrip("-"), word, key, rewrite))
            continue
        # `--token=…`, docker's `-e TOKEN=…`, curl's `-H Authorization: …`
        named = _FLAG.fullmatch(word) or _ASSIGNMENT.fullmatch(word) or _HEADER.fullmatch(word)
        if named and _is_secret(named[2]):
            shown.append(named[1] + _under(named[2], named[3], key, rewrite))
        else:
            shown.append(_loose(word, key, rewrite))
    return shown
