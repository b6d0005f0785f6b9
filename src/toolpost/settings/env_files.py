"""Files of `NAME=value` lines, as the `envFile` of VS Code and Cursor."""

import re
from pathlib import Path
from typing import Final

from toolpost.contracts.errors import BadConfiguration

_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")


def read_env_file(path: Path, place: str) -> dict[str, str]:
    """Read the variables of a file; errors name `place`, the setting that refers to it."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadConfiguration(f"{place}: cannot read {path}: {reason}.") from error
    found = [_LINE.fullmatch(line.strip()) for line in lines]
    return {line[1]: _parse_value(line[2]) for line in found if line}


def _parse_value(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        inner = text[1:-1]
        return inner.replace("\\n", "\n") if text[0] == '"' else inner
    return re.split(r"\s#", text, maxsplit=1)[0].strip()
