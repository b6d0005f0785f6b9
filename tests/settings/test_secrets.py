"""What is hidden of a server's settings, and what is not."""

import pytest

from tests.hostile.attacks import assert_linear, thread_cpu_s
from toolpost.base.redaction import conceal_known
from toolpost.settings import ServerSettings
from toolpost.settings.masking import make_concealer
from toolpost.settings.secrets import redact_server
from toolpost.upstreams.spec import ServerSpec


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
        ({"args": ["--key", "hunter2hunter2"]}, {"args": ["--key", "(redacted)"]}),
        ({"args": ["--key=hunter2hunter2"]}, {"args": ["--key=(redacted)"]}),
        ({"args": ["-k", "hunter2hunter2"]}, {"args": ["-k", "(redacted)"]}),
        ({"args": ["-k=hunter2hunter2"]}, {"args": ["-k=(redacted)"]}),
        ({"args": ["--pat", "hunter2hunter2"]}, {"args": ["--pat", "(redacted)"]}),
        ({"args": ["--service-key", "hunter2hunter2"]}, {"args": ["--service-key", "(redacted)"]}),
        (
            {"env": {"GITHUB_PAT": "hunter2", "OPENAI_KEY": "hunter2"}},
            {"env": {"GITHUB_PAT": "(redacted)", "OPENAI_KEY": "(redacted)"}},
        ),
        (
            {
                "args": [
                    "--key",
                    "/etc/ssl/server.key",
                    "-k",
                    "https://x/mcp",
                    "--key",
                    "server.pem",
                    "--sort-key",
                    "created",
                ]
            },
            {},
        ),
        ({"args": ["--key", "--verbose"]}, {}),
        ({"args": ["--key", "${KEY}"]}, {}),
        ({"args": ["https://x/s/3f9a2b7c1d4e5f60718293a4/mcp"]}, {"args": ["https://x/s/(redacted)/mcp"]}),
        (
            {"args": ["https://x/s/0b9f3c1e-2a4d-4e6f-8a1b-3c5d7e9f0a2b/mcp?x=1"]},
            {"args": ["https://x/s/(redacted)/mcp?x=1"]},
        ),
        ({"args": ["https://x/w/aB3-dE6_gH9-jK2_mN5-pQ8_/sse"]}, {"args": ["https://x/w/(redacted)/sse"]}),
        ({"args": ["https://x/a-long-project-name-of-2024/mcp", "https://x/api/v1/tools/20240102030405060708"]}, {}),
        ({"args": ["https://3f9a2b7c1d4e5f60718293a4@x/mcp"]}, {"args": ["https://(redacted)@x/mcp"]}),
        ({"args": ["https://user@x/mcp"]}, {}),
        (
            {"args": ["https://x/mcp?key=hunter2&code=hunter2&sig=hunter2&page=hunter2"]},
            {"args": ["https://x/mcp?key=(redacted)&code=(redacted)&sig=(redacted)&page=hunter2"]},
        ),
        ({"args": ["eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl"]}, {"args": ["(redacted)"]}),
    ],
)
def test_literal_secrets_are_hidden_and_references_are_not(given: dict[str, object], shown: dict[str, object]) -> None:
    server = redact_server(ServerSettings(command="x", **given))  # type: ignore[arg-type]

    assert server == ServerSettings(command="x", **(shown or given))  # type: ignore[arg-type]


def test_headers_and_addresses_are_hidden_too() -> None:
    server = redact_server(
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


@pytest.mark.parametrize(
    "unit", ["-", "_", "sk-", "eyJ-", "?", "?a", "://", "://a:", "://a@", "/", "a/", "xoxb-", "-----BEGIN ", "pk_sk-"]
)
def test_hostile_settings_take_linear_time(unit: str) -> None:
    def cost_s(size: int) -> float:
        server = ServerSettings(command="x", args=[unit * size], url=f"https://x/{unit * size}")
        return thread_cpu_s(lambda: redact_server(server))

    assert_linear(cost_s, small=4_000)


def test_a_secret_is_found_in_every_spelling() -> None:
    conceal = make_concealer(ServerSpec(name="x", command=("x", "--key", 'hun ter/2"é')))

    assert conceal('a hun ter/2"é b') == "a (redacted) b"
    for spelling in ("hun%20ter%2F2%22%C3%A9", "hun+ter%2F2%22%C3%A9", 'hun ter/2\\"\\u00e9'):
        assert conceal(f"a {spelling} b") == "a (redacted) b"


def test_a_line_of_a_key_is_concealed_too() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----"
    conceal = make_concealer(ServerSpec(name="x", command=("x",), env={"PRIVATE_KEY": key}))

    assert conceal("loaded MIIEvQIBADANBgkqhkiG9w0BAQEFAASC") == "loaded (redacted)"


def test_what_a_server_was_given_is_known_to_the_whole_process() -> None:
    make_concealer(ServerSpec(name="x", command=("x", "--pat", "remembered-by-value")))

    assert conceal_known("it said remembered-by-value.") == "it said (redacted)."
