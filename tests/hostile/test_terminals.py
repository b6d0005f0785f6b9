"""Words of servers that try to steer the terminal of whoever reads them."""

# ruff: noqa: F811 - fixtures are imported, and named by the tests that use them

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run, environment, invoke  # noqa: F401 - fixtures
from tests.hostile.attacks import attack

pytestmark = pytest.mark.wire

STEERING = "\x1b]0;owned\x07\x9b31m\u202e\u2066\u200f\u061c\u2028\U000e0041\x7f"
SERVER = f"""
import json, sys
words = {STEERING!r} + "words"
tool = {{"name": "speak", "title": words, "description": words, "inputSchema": {{"type": "object", "title": words}}}}
answers = {{
    "initialize": {{"protocolVersion": "2025-11-25", "capabilities": {{"tools": {{}}}}, "instructions": words,
        "serverInfo": {{"name": words, "version": "1"}}}},
    "tools/list": {{"tools": [tool]}},
    "tools/call": {{"content": [{{"type": "text", "text": words}}, {{"type": words}}], "isError": False}},
}}
print(words, file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answers.get(message["method"])
        said = {{"result": result}} if result else {{"error": {{"code": -32601, "message": words}}}}
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], **said}}), flush=True)
"""


@attack(
    "server",
    "puts escape sequences, C1 controls, bidirectional and invisible characters into names, descriptions, results and its log",
    "the command line spells all of them out, on the terminal and in `--json`, which stays equal in meaning",
)
def test_no_word_of_a_server_steers_the_terminal(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "toolpost.toml").write_text(
        f'[servers.up]\ncommand = "{sys.executable}"\nargs = ["-S", "server.py", "\\u202e"]\n'
    )
    shown = {
        words: invoke(*words.split())
        for words in (
            "tools",
            "tools up__speak",
            "tools --json",
            "call up__speak",
            "call up__speak --json",
            "tools --find speak",
            "tools --find speak --json",
            "servers",
            "servers --json",
            "config show",
            "doctor",
            "doctor --json",
            "audit",
            "audit --json",
        )
    }

    for words, ended in shown.items():
        text = ended.out + ended.err
        assert not [hex(ord(c)) for c in STEERING if not (c.isascii() and c.isprintable()) and c in text], (words, text)
    answer = json.loads(shown["call up__speak --json"].out)
    assert answer["content"][0]["text"] == f"{STEERING}words"
    assert "\\u202e" in shown["tools up__speak"].out
