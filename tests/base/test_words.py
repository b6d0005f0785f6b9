"""Names as words."""

import pytest

from toolpost.base.words import split_words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("apiKey", ["api", "key"]),
        ("API_KEY2", ["api", "key", "2"]),
        ("HTTPServer", ["http", "server"]),
        ("MYTOKENValue", ["mytoken", "value"]),
        ("", []),
        ("---", []),
    ],
)
def test_names_are_split_in_every_spelling(name: str, words: list[str]) -> None:
    assert split_words(name) == words
