"""What a terminal is sent: nothing that steers it, and JSON that means the same."""

import io
import json
import logging
import sys
import unicodedata

import pytest

from tests.hostile.attacks import assert_linear, thread_cpu_s
from toolpost.terminal.logging import JsonFormatter
from toolpost.terminal.tables import print_json
from toolpost.terminal.text import printable

STEERING = [
    *map(chr, {*range(0x20), *range(0x7F, 0xA0)} - {9, 10}),
    *map(chr, (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))),
    *map(chr, (0x2028, 0x2029, 0x200B, 0x2060, 0x2064, 0xFEFF, 0xE0001, 0xE0041, 0xE007F, 0xE0100)),
]
PLAIN = "tab\tline\nümlaut 你好 👩\u200d👩\u200d👧 \u0645\u06cc\u200c\u062e ❤\ufe0f \u00e9"


@pytest.mark.parametrize("character", STEERING, ids=lambda c: f"U+{ord(c):04X}")
def test_what_steers_a_terminal_is_spelled_out(character: str) -> None:
    shown = printable(f"a{character}b")

    assert shown.isascii()
    assert json.loads(f'"{shown}"') == f"a{character}b"


def test_every_bidirectional_control_of_unicode_is_among_them() -> None:
    embedding = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    found = [chr(n) for n in range(sys.maxunicode + 1) if unicodedata.bidirectional(chr(n)) in embedding]

    assert len(found) == len(embedding)
    assert printable("".join(found)).isascii()


def test_other_text_stays_as_it_is() -> None:
    assert printable(PLAIN) == PLAIN


def test_half_a_character_is_spelled_out() -> None:
    assert printable("\ud83d") == "\\ud83d"


def test_json_in_colour_shows_no_more_than_without(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_json({"text": "".join(STEERING)})

    shown = screen.getvalue()
    assert "\x1b[" in shown, "it is in colour"
    assert not [c for c in STEERING if c != "\x1b" and c in shown]


def test_a_log_line_in_json_is_escaped_and_means_the_same() -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "event", None, None)
    record.fields = {"text": "\u202eevil\x9b31m\U000e0041"}
    line = JsonFormatter().format(record)

    assert line.isascii()
    assert json.loads(line)["text"] == "\u202eevil\x9b31m\U000e0041"


def test_it_takes_linear_time() -> None:
    assert_linear(lambda size: thread_cpu_s(lambda: printable("\u202e" * size)), small=10_000)
