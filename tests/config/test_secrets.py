"""What is hidden of a server's settings, and what is not."""

import pytest

from toolpost.config import ServerSettings
from toolpost.config.secrets import without_secrets


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"env": {"GITHUB_TOKEN": "hunter2"}}, {"env": {"GITHUB_TOKEN": "(redacted)"}}),
        ({"env": {"GITHUB_TOKEN": "${T}"}}, {"env": {"GITHUB_TOKEN": "${T}"}}),
        ({"env": {"TOKEN": "${T:-hunter2}"}}, {"env": {"TOKEN": "${T:-(redacted)}"}}),
        ({"env": {"TOKEN": "hunter${T}"}}, {"env": {"TOKEN": "(redacted)"}}),
        ({"env": {"TOKEN": "$${T}"}}, {"env": {"TOKEN": "(redacted)"}}),
        ({"env": {"MODE": "fast"}}, {"env": {"MODE": "fast"}}),
        ({"env": {"TOKEN_FILE": "/run/t"}}, {"env": {"TOKEN_FILE": "/run/t"}}),
        ({"env": {"X": "ghp_0123456789abcdefghij"}}, {"env": {"X": "(redacted)"}}),
        ({"env": {"DB": "pg://u:hunter2@h/d"}}, {"env": {"DB": "pg://u:(redacted)@h/d"}}),
        ({"env": {"DB": "pg://u:${P:-hunter2}@h/d"}}, {"env": {"DB": "pg://u:${P:-(redacted)}@h/d"}}),
        ({"args": ["--api-key", "hunter2", "x"]}, {"args": ["--api-key", "(redacted)", "x"]}),
        ({"args": ["--api-key=hunter2"]}, {"args": ["--api-key=(redacted)"]}),
        ({"args": ["-e", "TOKEN=hunter2"]}, {"args": ["-e", "TOKEN=(redacted)"]}),
        ({"args": ["-e", "TOKEN"]}, {"args": ["-e", "TOKEN"]}),
        (
            {"args": ["--header", "Authorization: Bearer hunter2"]},
            {"args": ["--header", "Authorization: Bearer (redacted)"]},
        ),
        ({"args": ["-y", "task-management-server-with-a-long-name1"]}, {}),
    ],
)
def test_literal_secrets_are_hidden_and_references_are_not(given: dict[str, object], shown: dict[str, object]) -> None:
    server = without_secrets(ServerSettings(command="x", **given))  # type: ignore[arg-type]

    assert server == ServerSettings(command="x", **(shown or given))  # type: ignore[arg-type]


def test_headers_and_addresses_are_hidden_too() -> None:
    server = without_secrets(
        ServerSettings(
            url="https://u:hunter1@x/mcp?api_key=hunter2&page=3",
            headers={"Authorization": "Bearer hunter3", "X-Api-Key": "hunter4", "Accept": "x", "Cookie": "hunter5"},
        )
    )

    assert server.url == "https://u:(redacted)@x/mcp?api_key=(redacted)&page=3"
    assert server.headers == {
        "Authorization": "Bearer (redacted)",
        "X-Api-Key": "(redacted)",
        "Accept": "x",
        "Cookie": "(redacted)",
    }
