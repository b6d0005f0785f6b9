"""Pages made from the code: `python -m tests.docs.generate` writes them, `test_configuration.py` compares them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.docs.hostile_suite import attacks_page
from tests.docs.python_api import api_page
from tests.docs.rules import rules_page
from toolpost.settings import config_schema

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

`--listen` wins over `http.listen`; `--plugin` adds to `plugins.load`.

[`schemas/toolpost.schema.json`](../../schemas/toolpost.schema.json) is the JSON Schema of the file, for editors that complete
and check; `toolpost config schema` prints the same.
"""


def pages() -> dict[Path, str]:
    """Return every generated page with its text."""
    schema = config_schema()
    return {
        ROOT / "docs/reference/configuration.md": "\n".join(_configuration(schema)),
        ROOT / "docs/reference/compatibility-rules.md": rules_page(COMMAND),
        ROOT / "docs/reference/hostile-suite.md": attacks_page(COMMAND),
        ROOT / "docs/reference/python-api.md": api_page(COMMAND),
        ROOT / "schemas/toolpost.schema.json": json.dumps(schema, indent=2) + "\n",
    }


def _configuration(schema: dict[str, Any]) -> Iterator[str]:
    settings = schema["$defs"]["Config"]["properties"]
    sections = {name: part for name, part in settings.items() if _referred(part)}
    yield _HEAD
    yield "## At the top\n"
    yield from _table({name: part for name, part in settings.items() if name not in sections})
    for name, part in sections.items():
        yield from _section(name if "additionalProperties" not in part else f"{name}.NAME", part, schema)
    yield "## Environment\n"
    yield "| variable | meaning |\n|---|---|"
    yield from (f"| `{name}` | {meaning} |" for name, meaning in ENVIRONMENT.items())
    yield "\nA variable that is empty counts as not set.\n"


def _section(name: str, part: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    section = schema["$defs"][_referred(part).rsplit("/", 1)[-1]]
    inner = {key: held for key, held in section["properties"].items() if _referred(held)}
    yield f"## `[{name}]`\n"
    yield f"{section['description']}\n"
    yield from _table({key: held for key, held in section["properties"].items() if key not in inner})
    for key, held in inner.items():
        yield from _section(f"{name}.{key}" + (".NAME" if "additionalProperties" in held else ""), held, schema)


def _referred(part: dict[str, Any]) -> str:
    """Name the definition of a section, or of each entry of a table of sections."""
    choices = [part, part.get("additionalProperties", {}), *part.get("anyOf", ())]
    return next((str(choice["$ref"]) for choice in choices if isinstance(choice, dict) and "$ref" in choice), "")


def _table(settings: dict[str, Any]) -> Iterator[str]:
    yield "| setting | type | default | meaning |\n|---|---|---|---|"
    for name, part in settings.items():
        default = "not set" if part["default"] is None else f"`{json.dumps(part['default'])}`"
        yield f"| `{name}` | {_type(part)} | {default} | {part['description']} |"
    yield ""


def _type(part: dict[str, Any]) -> str:
    if "anyOf" in part:
        return " or ".join(_type(choice) for choice in part["anyOf"] if choice.get("type") != "null")
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
