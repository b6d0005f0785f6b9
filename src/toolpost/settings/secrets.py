"""Finds secrets in a server's settings, and rewrites them.

A secret is a value under a secret name (`GITHUB_TOKEN`, `--api-key`, `?token=`), a value that is not a path under a name that
often has one (`--key`, `-k`, `--pat`, `?key=`), a text in the format of a known service's keys, and a segment of a URL's path
that looks random. A reference such as `${GITHUB_TOKEN}` is not one.

Every pattern here takes linear time: imported client files come from others.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

from toolpost.base.redaction import REDACTED, is_secret_name
from toolpost.base.words import split_words
from toolpost.settings.servers import AuthSettings, ServerSettings
from toolpost.settings.variables import Reference, split_references

Rewrite = Callable[[str, str, str], str]
"""Takes the setting that contains a secret, the secret's own name and the secret; returns the replacement."""

AUTH_SECRETS: Final = ("client_secret", "private_key", "subject_token", "idp_client_secret", "assertion")
"""The settings of `auth` that are secret."""

_KNOWN_KEY: Final = re.compile(
    # No letter before it: `task-management-server` is a name. Matches are checked again by `_is_key`, because a lookahead in
    # the pattern would be retried at every dash.
    r"(?<![A-Za-z0-9])(?:(?:sk|pk|rk)[-_][\w-]{16,}+|gh[pousr]_\w{16,}+|github_pat_\w{16,}+|glpat-[\w-]{16,}+"
    r"|xox[abeoprs]-[\w-]{10,}+|AKIA[A-Z0-9]{12,}+|AIza[\w-]{20,}+|(?:npm|hf|ntn|secret|lin_api|figd|shpat|dop_v1)_\w{16,}+"
    r"|(?:pypi|tvly)-[\w-]{16,}+|eyJ[\w-]{8,}+(?:\.[\w-]*+){0,4}|-----BEGIN [A-Z ]*+PRIVATE KEY-----.*)",
    re.DOTALL,
)
_SCHEME: Final = re.compile(r"((?:Bearer|Basic|Token|Digest|ApiKey)\s+)(.*)", re.IGNORECASE | re.DOTALL)
_FLAG: Final = re.compile(r"(-{1,2}([A-Za-z][\w-]*)=)(.*)", re.DOTALL)
_ASSIGNMENT: Final = re.compile(r"(([A-Za-z_]\w*)=)(.*)", re.DOTALL)
_HEADER: Final = re.compile(r"(([A-Za-z][\w-]*):\s*)(.*)", re.DOTALL)
_QUERY: Final = re.compile(r"([?&#]([^=?&#]++)=)([^&#]*)")
_FILE: Final = re.compile(r".*(?:file|path|dir)", re.IGNORECASE)
_PASSWORD: Final = re.compile(r"(?<=://)([^/@\s?#:]*+:)([^/@\s]*+)(?=@)")
_USER: Final = re.compile(r"(?<=://)([^/@\s?#:]++)(?=@)")
_PATH: Final = re.compile(r"(?<=://)([^/\s?#]++)(/[^\s?#\"'<>]*+)")

_OFTEN_SECRET: Final = frozenset({"key", "pat"})
_HARMLESS_KEYS: Final = frozenset(
    {"cache", "foreign", "partition", "primary", "public", "pub", "routing", "row", "sort"}
)
_QUERY_NAMES: Final = frozenset({"code", "k", "sig", "signature"})
"""Names that mean a secret in the query of a URL, and rarely elsewhere."""
_PLACE: Final = re.compile(
    # `--key /etc/ssl/server.key`, `-k https://…` (curl's, which has no value)
    r"(?:[a-z][a-z0-9+.-]*+://|[/~]|\.{1,2}/|[A-Za-z]:\\).*|.*\.(?:pem|key|crt|cer|json|ya?ml|toml|txt|env|p12|pfx)",
    re.DOTALL | re.IGNORECASE,
)
_SHORTEST_VALUE: Final = 6
"""A shorter value under a name that is not always secret counts as a plain word."""
_RUN: Final = re.compile(r"[A-Za-z0-9]{16,}+")
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_SEGMENT: Final = re.compile(r"[\w.~%+=-]{16,}+")


def redact_server(server: ServerSettings) -> ServerSettings:
    """Return the settings with every secret replaced, for display."""
    return rewrite_secrets(server, lambda _key, _name, _rewrite_secret: REDACTED)


def rewrite_secrets(server: ServerSettings, rewrite: Rewrite, *, is_strict: bool = False) -> ServerSettings:
    """Return the settings with `rewrite` applied to every literal secret.

    With `is_strict`, every value of `env` and `headers` counts as one: not every secret has a name that says so.
    """
    rewrite_value = _rewrite_secret if is_strict else _rewrite_named
    return msgspec.structs.replace(
        server,
        env={name: rewrite_value(name, value, f"env.{name}", rewrite) for name, value in server.env.items()},
        headers={
            name: rewrite_value(name, value, f"headers.{name}", rewrite) for name, value in server.headers.items()
        },
        args=_rewrite_arguments(server.args, rewrite),
        command=server.command and _rewrite_embedded(server.command, "command", rewrite),
        url=server.url and _rewrite_embedded(server.url, "url", rewrite),
        cwd=server.cwd and _rewrite_embedded(server.cwd, "cwd", rewrite),
        network=msgspec.structs.replace(
            server.network,
            proxy=server.network.proxy and _rewrite_embedded(server.network.proxy, "network.proxy", rewrite),
        ),
        auth=server.auth and _rewrite_auth(server.auth, rewrite),
    )


def _rewrite_auth(auth: AuthSettings, rewrite: Rewrite) -> AuthSettings:
    secrets = {key: value for key in AUTH_SECRETS if (value := getattr(auth, key))}
    return msgspec.structs.replace(
        auth, **{key: _rewrite_secret(key, value, f"auth.{key}", rewrite) for key, value in secrets.items()}
    )


def _rewrite_named(name: str, value: str, key: str, rewrite: Rewrite) -> str:
    """Rewrite the value of a name: all of it if the name or the value is secret, else the secrets in it."""
    found = _KNOWN_KEY.fullmatch(value)
    if not _is_secret(name, value) and not (found and _is_key(found[0])):
        return _rewrite_embedded(value, key, rewrite)
    scheme = _SCHEME.fullmatch(value)
    prefix, secret = (scheme[1], scheme[2]) if scheme else ("", value)
    return prefix + _rewrite_secret(name, secret, key, rewrite)


def _is_secret(name: str, value: str) -> bool:
    # The path of a secret's file is not secret.
    if is_secret_name(name):
        return not _FILE.fullmatch(name)
    words = split_words(name)
    is_often = bool(words) and words[-1] in _OFTEN_SECRET and _HARMLESS_KEYS.isdisjoint(words)
    return (is_often or name == "k") and len(value) >= _SHORTEST_VALUE and not _PLACE.fullmatch(value)


def _is_key(found: str) -> bool:
    """Whether a text in the format of a known key is one: keys have digits, and a JWT has three parts."""
    if found.startswith("eyJ"):
        return found.count(".") >= 2
    return found.startswith("-----") or any(character.isdigit() for character in found)


def _is_random(segment: str) -> bool:
    """Whether a path segment looks random: a UUID, a long mix of letters and digits, or long with upper, lower and digits."""
    if not _SEGMENT.fullmatch(segment):
        return False
    if _UUID.search(segment):
        return True
    kinds = [bool(re.search(kind, segment)) for kind in ("[a-z]", "[A-Z]", "[0-9]")]
    if len(segment) >= 24 and all(kinds) and not segment.endswith((".tar.gz", ".tgz", ".whl", ".zip", ".js")):
        return True
    return any(not run.isdigit() and not run.isalpha() for run in _RUN.findall(segment))


def _rewrite_secret(name: str, value: str, key: str, rewrite: Rewrite) -> str:
    """Rewrite a text that is secret as a whole; references are kept, but not their defaults."""
    if not value.strip():
        return value
    pieces = list(split_references(value))
    if not all(isinstance(piece, Reference) and not piece.is_escaped for piece in pieces):
        return rewrite(key, name, value)
    return "".join(_rewrite_default(piece, name, key, rewrite) for piece in pieces if isinstance(piece, Reference))


def _rewrite_default(reference: Reference, name: str, key: str, rewrite: Rewrite) -> str:
    if not reference.default:
        return reference.text
    new = _rewrite_secret(name, reference.default, key, rewrite)
    return f"{reference.text[: -len(reference.default) - 1]}{new}}}"


def _rewrite_embedded(value: str, key: str, rewrite: Rewrite) -> str:
    """Rewrite secrets inside a text that is not secret as a whole: URLs and known keys."""
    value = _PASSWORD.sub(lambda found: found[1] + _rewrite_secret("password", found[2], key, rewrite), value)
    value = _USER.sub(
        lambda found: _rewrite_secret("token", found[1], key, rewrite) if _is_random(found[1]) else found[0],
        value,
    )
    value = _PATH.sub(lambda found: found[1] + _rewrite_path(found[2], key, rewrite), value)
    value = _QUERY.sub(
        lambda found: (
            found[1] + _rewrite_secret(found[2], found[3], key, rewrite) if _is_secret_query(found) else found[0]
        ),
        value,
    )
    return _KNOWN_KEY.sub(lambda found: rewrite(key, "key", found[0]) if _is_key(found[0]) else found[0], value)


def _is_secret_query(found: re.Match[str]) -> bool:
    return _is_secret(found[2], found[3]) or (found[2].lower() in _QUERY_NAMES and len(found[3]) >= _SHORTEST_VALUE)


def _rewrite_path(path: str, key: str, rewrite: Rewrite) -> str:
    return "/".join(
        _rewrite_secret("path", part, key, rewrite) if _is_random(part) else part for part in path.split("/")
    )


def _rewrite_arguments(words: list[str], rewrite: Rewrite) -> list[str]:
    rewritten: list[str] = []
    for number, word in enumerate(words):
        key = f"args[{number}]"
        flag = words[number - 1] if number else ""
        is_flag = re.fullmatch(r"-{1,2}[A-Za-z][\w-]*", flag) is not None
        if is_flag and not word.startswith("-") and _is_secret(flag.lstrip("-"), word):
            rewritten.append(_rewrite_named(flag.lstrip("-"), word, key, rewrite))
            continue
        # `--token=…`, docker's `-e TOKEN=…`, curl's `-H Authorization: …`
        named = _FLAG.fullmatch(word) or _ASSIGNMENT.fullmatch(word) or _HEADER.fullmatch(word)
        if named and _is_secret(named[2], named[3]):
            rewritten.append(named[1] + _rewrite_named(named[2], named[3], key, rewrite))
        else:
            rewritten.append(_rewrite_embedded(word, key, rewrite))
    return rewritten
