"""Read git configuration files. Includes are not followed: they may name any file."""

import os
from pathlib import Path
from typing import Final

from toolpost.parts.workspace.git.files import Unreadable, read_file

_LIMIT: Final = 256 * 1024
_ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b"}


def read_config(folder: Path, name: str = "config") -> dict[str, list[str]]:
    """Return all values of each setting by lower-case name, such as `core.filemode`; empty if there is no file.

    Raises `Unreadable`.
    """
    data = read_file(folder, name, _LIMIT)
    # Like git, skip the byte order mark that some editors write: it would hide the first section.
    return parse_config(data.decode("utf-8-sig", "replace")) if data else {}


def read_user_config() -> dict[str, list[str]]:
    """Return the settings of the system and the user, which are trusted; unreadable files count as empty."""
    chosen = os.environ.get("GIT_CONFIG_GLOBAL")
    files = [chosen] if chosen else [f"{_user_folder()}/config", "~/.gitconfig"]
    if not os.environ.get("GIT_CONFIG_NOSYSTEM"):
        files.insert(0, os.environ.get("GIT_CONFIG_SYSTEM", "/etc/gitconfig"))
    found: dict[str, list[str]] = {}
    for name in files:
        try:
            # Resolved, because people link these files to a folder of dotfiles.
            real = Path(name).expanduser().resolve()
            settings = read_config(real.parent, real.name)
        except (Unreadable, OSError, RuntimeError):
            # A user without a home directory, as in many containers, has no settings of its own.
            continue
        for key, values in settings.items():
            found.setdefault(key, []).extend(values)
    return found


def find_user_ignore_file() -> Path:
    """Return where the user's own ignore rules are; raises `RuntimeError` or `OSError` for a user without a home directory."""
    chosen = read_user_config().get("core.excludesfile")
    return Path(chosen[-1] if chosen and chosen[-1] else f"{_user_folder()}/ignore").expanduser().resolve()


def _user_folder() -> str:
    return f"{os.environ.get('XDG_CONFIG_HOME') or '~/.config'}/git"


def is_true(settings: dict[str, list[str]], key: str, *, default: bool) -> bool:
    """Return a boolean setting; the last value counts."""
    values = settings.get(key)
    return default if not values else values[-1].lower() in ("", "true", "yes", "on", "1")


def parse_config(text: str) -> dict[str, list[str]]:
    """Parse git's configuration format. A key without a value means true, and has an empty string here."""
    settings: dict[str, list[str]] = {}
    section = ""
    lines = iter(text.splitlines())
    for line in lines:
        rest = line.strip()
        if rest.startswith("["):
            head, _, rest = rest[1:].partition("]")
            name, _, inner = head.partition(" ")
            inner = inner.strip().strip('"')
            section = f"{name.strip().lower()}.{inner}" if inner else name.strip().lower()
            rest = rest.strip()
        if not rest or rest[0] in "#;":
            continue
        key, _, value = rest.partition("=")
        while value.endswith("\\") and not value.endswith("\\\\"):
            value = value[:-1] + next(lines, "")
        settings.setdefault(f"{section}.{key.strip().lower()}", []).append(_unquote(value.strip()))
    return settings


def _unquote(value: str) -> str:
    out: list[str] = []
    is_quoted = False
    characters = iter(value)
    for character in characters:
        if character == '"':
            is_quoted = not is_quoted
        elif character == "\\":
            following = next(characters, "")
            out.append(_ESCAPES.get(following, following))
        elif character in "#;" and not is_quoted:
            break
        else:
            out.append(character)
    return "".join(out).strip()
