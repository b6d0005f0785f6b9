"""Pages made from the code: `python -m tests.docs.generate` writes them, `test_configuration.py` compares them."""

import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.docs.hostile_suite import attacks_page
from tests.docs.python_api import api_page
from tests.docs.rules import rules_page
from toolpost.settings import Config
from toolpost.settings.loader import config_schema, file_type
from toolpost.settings.marks import entry_type, is_advanced, own_type, section_type, types_of

ROOT = Path(__file__).parents[2]
COMMAND = "python -m tests.docs.generate"

ENVIRONMENT = {
    "TOOLPOST_TOKEN": "the one token that sees everything over HTTP; wins over `http.token`",
    "TOOLPOST_DEBUG": "`1` is `--debug`: tracebacks, and every log event",
    "NO_COLOR": "anything but nothing: no color, on terminals neither",
}

_HEAD = f"""\
# Configuration

<!-- Made by `{COMMAND}`; a test compares the two. -->

`toolpost.toml` in the current folder, or the file that `--config` names. `toolpost serve` watches it. Every setting has
a default that works, and no file is needed. An unknown key is an error that names the nearest known one. `toolpost config show`
prints what is in force.

This page has the settings that most gateways need; [the others](configuration-advanced.md) are limits, timings and special cases.

```toml
#:schema ./toolpost.schema.json
[http]
listen = "127.0.0.1:8420"

[limits]
timeout_s = 120
waiting = 16

[plugins]
load = ["notes:plugin"]
disable = ["time"]

[servers.github]
command = "npx"
args = ["-y", "@modelcontextprotocol/server-github"]
env = {{GITHUB_TOKEN = "${{GITHUB_TOKEN}}"}}
```

Any text may be, or contain, `${{VAR}}`, `${{VAR:-default}}`, `${{file:PATH}}` or `${{keychain:SERVICE/NAME}}`; `$${{` is a
literal `${{`. Paths are relative to the project. Secrets, and what servers, APIs and agents are reached by, are read where they
are used: a variable that is missing matters to those alone. All other texts are replaced when the file is read.

`--listen` wins over `http.listen`; `--plugin` adds to `plugins.load`.

[`schemas/toolpost.schema.json`](../../schemas/toolpost.schema.json) is the JSON Schema of the file, for editors that complete
and check; `toolpost config schema` prints the same.
"""


_ADVANCED_HEAD = f"""\
# Advanced configuration

<!-- Made by `{COMMAND}`; a test compares the two. -->

Settings of `toolpost.toml` that few gateways need; [Configuration](configuration.md) has the others, and says how the file is
read.
"""

CORE_LIMIT = 100
"""Settings on the first page: what a user of a gateway looks through on the first day."""


def pages() -> dict[Path, str]:
    """Return every generated page with its text."""
    schema = config_schema()
    return {
        ROOT / "docs/reference/configuration.md": "\n".join(_configuration(schema)),
        ROOT / "docs/reference/configuration-advanced.md": "\n".join(_advanced(schema)),
        ROOT / "docs/reference/compatibility-rules.md": rules_page(COMMAND),
        ROOT / "docs/reference/hostile-suite.md": attacks_page(COMMAND),
        ROOT / "docs/reference/python-api.md": api_page(COMMAND),
        ROOT / "schemas/toolpost.schema.json": json.dumps(schema, indent=2) + "\n",
    }


def _configuration(schema: dict[str, Any]) -> Iterator[str]:
    yield _HEAD
    yield from _Page(schema, is_advanced=False).sections()
    yield "## Environment\n"
    yield "| variable | meaning |\n|---|---|"
    yield from (f"| `{name}` | {meaning} |" for name, meaning in ENVIRONMENT.items())
    yield "\nA variable that is empty counts as not set.\n"


def _advanced(schema: dict[str, Any]) -> Iterator[str]:
    yield _ADVANCED_HEAD
    yield from _Page(schema, is_advanced=True).sections()


class _Page:
    """The sections of one page. A struct that several sections have is documented where it comes first."""

    def __init__(self, schema: dict[str, Any], *, is_advanced: bool) -> None:
        self._schema = schema
        self._is_advanced = is_advanced
        self._seen: dict[Any, str] = {}
        """Where each struct is documented."""

    def sections(self) -> Iterator[str]:
        whole = file_type(Config())
        settings = self._schema["$defs"]["Config"]["properties"]
        tables = {name: part for name, part in settings.items() if _referred(part)}
        kinds = {field.encode_name: field.type for field in msgspec.structs.fields(whole)}
        if rows := list(self._rows({name: part for name, part in settings.items() if name not in tables}, kinds)):
            yield "## At the top\n"
            yield from _table(rows)
        for name, part in tables.items():
            if (own := own_type(kinds[name])) is not None and (
                rows := list(self._rows(part["properties"], types_of(own)))
            ):
                yield f"## `[{name}]`\n\n{inspect.getdoc(own)}\n"
                yield from _table(rows)
            yield from self._section(name if "additionalProperties" not in part else f"{name}.NAME", part, kinds[name])

    def _section(self, name: str, part: dict[str, Any], kind: Any) -> Iterator[str]:
        struct = section_type(kind) or entry_type(kind)
        assert struct is not None
        section = self._schema["$defs"][_referred(part).rsplit("/", 1)[-1]]
        kinds = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
        inner = {key: held for key, held in section["properties"].items() if _referred(held)}
        same = [one for one in struct.__mro__ if one in self._seen and (one is struct or one in struct.__bases__)]
        derived = [other for other in self._seen if other is not struct and issubclass(other, struct)]
        rows = list(self._rows({key: held for key, held in section["properties"].items() if key not in inner}, kinds))
        if rows and (known := [*same, *derived]):
            yield f"## `[{name}]`\n"
            shared = "" if known[0] is struct else f": {', '.join(f'`{row[0]}`' for row in rows)}"
            yield f"{section['description']} Its settings are those of `[{self._seen[known[0]]}]`{shared}.\n"
            return
        if rows:
            self._seen[struct] = name
            yield f"## `[{name}]`\n"
            yield f"{section['description']}\n"
            yield from _table(rows)
        for key, held in inner.items():
            yield from self._section(
                f"{name}.{key}" + (".NAME" if "additionalProperties" in held else ""), held, kinds[key]
            )

    def _rows(self, settings: dict[str, Any], kinds: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        return ((name, part) for name, part in settings.items() if is_advanced(kinds[name]) is self._is_advanced)


def _referred(part: dict[str, Any]) -> str:
    """Name the definition of a section, or of each entry of a table of sections."""
    choices = [part, part.get("additionalProperties", {}), *part.get("anyOf", ())]
    return next((str(choice["$ref"]) for choice in choices if isinstance(choice, dict) and "$ref" in choice), "")


def _table(rows: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    yield "| setting | type | default | meaning |\n|---|---|---|---|"
    for name, part in rows:
        default = "not set" if part["default"] is None else f"`{json.dumps(part['default'])}`"
        yield f"| `{name}` | {_type(part)} | {default} | {part['description']} |"
    yield ""


def _type(part: dict[str, Any]) -> str:
    if "anyOf" in part:
        # That any text may be a reference, the page says once.
        choices = (each for each in part["anyOf"] if each.get("type") != "null" and "pattern" not in each)
        return " or ".join(map(_type, choices))
    if "enum" in part:
        return " or ".join(f"`{json.dumps(value)}`" for value in part["enum"] if value is not None)
    if part["type"] == "object":
        return f"table of {_type(part['additionalProperties'])}" if "additionalProperties" in part else "table"
    if part["type"] == "array":
        return f"list of {_type(part['items'])}"
    noun = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}[part["type"]]
    bounds = [
        f"{word} {part[key]:,}"
        for key, word in (("exclusiveMinimum", "above"), ("minimum", "from"), ("maximum", "to"))
        if key in part
    ]
    return f"{noun} {' '.join(bounds)}".strip()


def main() -> None:
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
